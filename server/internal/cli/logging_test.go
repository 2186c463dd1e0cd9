package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestServerErrorsAreLogged: those that an operator can act on, and none that any client can cause.
func TestServerErrorsAreLogged(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"http: panic serving 192.0.2.1:4000: oops":                          "ERROR",
		"http: Accept error: accept tcp: too many open files; retrying":     "WARN",
		"http: TLS handshake error from 192.0.2.1:4000: remote error: oops": "",
	} {
		var out bytes.Buffer
		newServerLog(newLog(&out, "text", "info", new(slog.LevelVar)), nil).Print(line)
		if got := out.String(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s\nis logged as %q, want %s", line, got, want)
		}
	}
}
