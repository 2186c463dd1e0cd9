package engine

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestChangesOfTheCircuitBreakerAreLogged(t *testing.T) {
	var out bytes.Buffer
	s := &stack{log: slog.New(slog.NewTextHandler(&out, nil))}
	s.changed(true, errors.New("connection refused"))
	s.changed(false, nil)
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "connection refused") ||
		!strings.HasSuffix(got, "circuit breaker closed: Redis is responding again\"\n") {
		t.Errorf("logged:\n%s", got)
	}
}

func TestMasked(t *testing.T) {
	for url, want := range map[string]string{
		"redis://127.0.0.1:6379/0":                        "redis://127.0.0.1:6379/0",
		"redis://user:secret@host:6379/0":                 "redis://***@host:6379/0",
		"redis://:sec@ret@host":                           "redis://***@host",
		"redis://user:sec/ret@host/0":                     "redis://***@host/0",
		"redis+sentinel://h/m/0?sentinel_password=secret": "redis+sentinel://h/m/0?…",
		"memory": "memory",
	} {
		if got := Masked(url); got != want {
			t.Errorf("%s is shown as %s, want %s", url, got, want)
		}
	}
}
