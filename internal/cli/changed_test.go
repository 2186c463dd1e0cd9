package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestChangesOfTheCircuitBreakerAreLogged(t *testing.T) {
	var out bytes.Buffer
	log, err := newLog(&out, "text", "info")
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{log: log}
	s.changed(true, errors.New("connection refused"))
	s.changed(false, nil)
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "connection refused") ||
		!strings.HasSuffix(got, "circuit breaker closed: Redis is responding again\"\n") {
		t.Errorf("logged:\n%s", got)
	}
}
