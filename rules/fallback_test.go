package rules_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// TestFallbackKeys: how many keys a process counts beside the store stands in the file, and is checked there.
func TestFallbackKeys(t *testing.T) {
	for text, want := range map[string]int{"server: {fallback_keys: 1000}\nrules: []": 1000, "rules: []": 0} {
		set, err := load(t, text)
		if err != nil || set.Server().FallbackKeys != want {
			t.Errorf("%q: %v, %v; want %d", text, set, err, want)
		}
	}
	for _, text := range []string{"server: {fallback_keys: -1}\nrules: []", "server: {fallback_keys: 1073741825}\nrules: []", "server: {fallback_keys: many}\nrules: []"} {
		if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), "fallback_keys") {
			t.Errorf("%q: %v, want a mistake that names the field", text, err)
		}
	}
}

func load(t *testing.T, text string) (*rules.Set, error) {
	t.Helper()
	file, err := rules.Parse("rules.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	return rules.Compile(file)
}
