package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/layers/breaker"
)

// TestWhatTheBreakerLogs is the begin and the end of an outage, and not each attempt between.
func TestWhatTheBreakerLogs(t *testing.T) {
	var out bytes.Buffer
	log, err := newLog(&out, "text", "info")
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{log: log}
	from := breaker.Closed
	for _, to := range []breaker.State{breaker.Open, breaker.Closing, breaker.Open, breaker.Closing, breaker.Closed} {
		s.changed(breaker.Change{From: from, To: to, Cause: errors.New("connection refused")})
		from = to
	}
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "connection refused") || !strings.HasSuffix(got, "circuit breaker closed: Redis is responding again\"\n") {
		t.Errorf("logged:\n%s", got)
	}
}
