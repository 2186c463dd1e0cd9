package rules_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

func TestCommonMistakesAreExplained(t *testing.T) {
	for text, want := range map[string]string{
		"rules: [{name: a, key: ip, limit: 1/1s}]":                           `did you mean "client.ip"?`,
		"rules: [{name: a, key: remote_addr, limit: 1/1s}]":                  `did you mean "client.ip"?`,
		"rules: [{name: a, algorithm: slidingwindow, limit: 1/1s}]":          `did you mean "sliding_log"?`,
		"rules: [{name: a, algorithm: sliding_window_counter, limit: 1/1s}]": `did you mean "sliding_counter"?`,
		"rules: [{name: a, on_store_error: open, limit: 1/1s}]":              `did you mean "allow"?`,
		"rules: [{name: a, mode: dry-run, limit: 1/1s}]":                     `did you mean "shadow"?`,
		"server: {store: localhost:6379}\nrules: []":                         "the URL of a host and a port begins with redis://",
		"- {name: a, limit: 1/1s}":                                           "begin it with the line rules:",
		"rules: [{name: a, limit: 100/1M}]":                                  "m for a minute, and calendar COUNT/month for a month",
		"rules: [{name: a, limit: 100/M}]":                                   "a capital M could be either",
		"rules: [{name: a, limit: 1000/month}]":                              "calendar COUNT/month",
		"rules: [{name: a, limit: 10/s burst=20}]":                           "after it burst N, overdraft N, step, such as burst 20",
		"rules: [{name: a, limit: 10/s nodelay}]":                            `after it burst N, overdraft N, step; "nodelay" is not an option of token_bucket`,
		"rules: [{name: a, limit: sliding_log 10/s burst 3}]":                `nothing after it; "burst" is not an option of sliding_log`,
	} {
		if _, err := rules.Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
