package nearest_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/nearest"
)

func TestOf(t *testing.T) {
	words := []string{"enforce", "shadow", "match", "v4", "limit"}
	for given, want := range map[string]string{
		"enforced": "enforce", "SHADOW": "shadow", "mach": "match", "macht": "match", "limits": "limit",
		"limt": "limit",
		"v5":   "v4", "v": "", "": "", "lm": "", "other": "", "enfrc": "enforce", "enfr": "",
		strings.Repeat("x", 1000): "",
	} {
		if got := nearest.Of(given, words); got != want {
			t.Errorf("%.20q: %q, want %q", given, got, want)
		}
	}
}
