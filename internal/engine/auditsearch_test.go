package engine

import (
	"testing"

	"github.com/weirproject/weir/rules"
)

// TestAuditIsReadWhereAllNodesWrite: a Redis has the records of all, a file those of one.
func TestAuditIsReadWhereAllNodesWrite(t *testing.T) {
	for want, to := range map[string][]string{
		"":                       nil,
		"audit.log":              {"audit.log"},
		"redis://127.0.0.1:6379": {"audit.log", "redis://127.0.0.1:6379"},
		InStore:                  {InStore, "audit.log"},
	} {
		if got := (&Engine{Config: Config{Server: rules.Server{Audit: to}}}).readable(); got != want {
			t.Errorf("%q are read in %q, not %q", to, got, want)
		}
	}
}
