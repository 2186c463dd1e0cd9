package rules_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// TestPromoteTextOfWhatIsNoRule says where it is wrong; that the rest is right, the ledger's tests say.
func TestPromoteTextOfWhatIsNoRule(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "the file is empty",
		"- a\n":                                  "this is no rule",
		"limit: &a 5/1m\ncandidate: {limit: *a}": "anchors and aliases",
		"a: [1":                                  "not YAML",
		"a: 1\n---\nb: 2\n":                      "a second document",
		"a: \xff":                                "not UTF-8",
		"a: " + strings.Repeat("[", 40):          "not YAML",
	} {
		if got, err := rules.PromoteText("login", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q becomes %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"a: 1 # x\n": "a: 1 # x\n",
		"limit: 5/1m\ncandidate: {limit: 3/1m}\n": "limit: 3/1m\n",
		"candidate: 3/1m\nlimit: 5/1m\n":          "limit: 5/1m\n",
	} {
		if got, err := rules.PromoteText("login", []byte(text)); err != nil || string(got) != want {
			t.Errorf("%q becomes %q, %v; want %q", text, got, err, want)
		}
	}
}
