package redistest

import (
	"flag"
	"testing"
	"time"
)

// patience is for a busy machine.
const patience = time.Minute

// Await polls ok, and fails the test after a minute: the machine may be busy.
func Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("redistest: timed out after %v waiting for: %s", patience, what)
		}
	}
}

// Together has n parallel tests of a package run at a time, unless the flag -parallel is given: they wait for servers,
// not for processors. TestMain calls it.
func Together(n string) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", n)
	}
}
