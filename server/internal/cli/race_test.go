//go:build race

package cli_test

// The program runs under the race detector: it ends with 66 where it found a race. By
// itself the detector waits for a second at each program's end.
var (
	built  = []string{"-race"}
	raceOf = []string{"GORACE=atexit_sleep_ms=0"}
)
