//go:build unix

package faulttest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/server/internal/faulttest"
)

func TestMain(m *testing.M) {
	redistest.Together(together)
	os.Exit(m.Run())
}

// A stack puts layers over the store on Redis.
type stack struct {
	name string
	over func(t *testing.T, s weir.Store, url string) weir.Store
}

// stacks are what every fault is tried on: those that are exact, and where an error of the
// store is an error. A layer that grants ahead, or in Redis' place, charges otherwise.
var stacks = []stack{
	{"store alone", func(_ *testing.T, s weir.Store, _ string) weir.Store { return s }},
	{"layers", layered},
}

// layered has the layers as weir serve stacks them.
func layered(t *testing.T, s weir.Store, url string) weir.Store {
	t.Helper()
	o := layers.Options{Local: memstore.New()}
	if strings.HasPrefix(url, "redis+cluster:") {
		o.Cluster = true
	}
	stacked, err := layers.New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stacked.Store.Close() })
	return stacked.Store
}

// each runs a test on every stack, beside other tests.
func each(t *testing.T, test func(*testing.T, stack)) {
	t.Parallel()
	for _, one := range stacks[bare:] {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			test(t, one)
		})
	}
}

// try tries the stack over what a URL opens, and sees to it that all goroutines end that
// the fault began. exact is the URL for the recount.
func try(t *testing.T, s stack, url, exact string, f faulttest.Trial) (r faulttest.Report) {
	t.Helper()
	pprof.Do(t.Context(), pprof.Labels("trial", t.Name()),
		func(context.Context) { r = tryLabelled(t, s, url, exact, f) })
	return r
}

func tryLabelled(t *testing.T, s stack, url, exact string, f faulttest.Trial) faulttest.Report {
	t.Helper()
	prefix := redisstore.WithPrefix(weir.NewLeaseID() + ":")
	store := s.over(t, open(t, url, prefix, redisstore.WithTimeout(budget)), url)
	f.Rate = max(f.Rate, 1000) / slower
	before := goroutines(t)
	// Opened after the fault: a client that went through it may look for a node that is gone.
	patient := func() weir.Store { return open(t, exact, prefix, redisstore.WithTimeout(10*time.Second)) }
	r, err := f.Run(t.Context(), store, patient, "", budget)
	t.Logf("%s\n%s", r.Row(strings.TrimPrefix(t.Name(), "Test")), r.Texts())
	if err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "goroutines to end", func() bool { return goroutines(t) <= before+connections })
	return r
}

// connections is how many goroutines may be left for connections that were made since: a
// node of a Cluster has up to five.
const connections = 6 * 5

// open opens a store, of which a busy machine may be too slow to answer within the store's timeout.
func open(t *testing.T, url string, options ...redisstore.Option) (store *redisstore.Store) {
	t.Helper()
	options = append([]redisstore.Option{redisstore.WithWarn(nil)}, options...)
	var err error
	redistest.Await(t, "a store", func() bool {
		store, err = redisstore.Open(t.Context(), url, options...)
		return !errors.Is(err, weir.ErrUnavailable)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

var counted = regexp.MustCompile(`(?m)^(\d+) @.*\n# labels: (.*)$`)

// goroutines counts those of this trial: others run beside it.
func goroutines(t *testing.T) (n int) {
	t.Helper()
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		t.Fatal(err)
	}
	for _, group := range counted.FindAllStringSubmatch(profile.String(), -1) {
		if group[2] == fmt.Sprintf(`{"trial":%q}`, t.Name()) {
			count, _ := strconv.Atoi(group[1])
			n += count
		}
	}
	return n
}
