package rules_test

import (
	"fmt"
	"testing"
)

func TestCountIf(t *testing.T) {
	none := map[string][]string{}
	failed := map[string][]string{"X-Login": {"ok", " failed\t"}}
	for _, test := range []struct {
		countIf string
		status  int
		header  map[string][]string
		want    bool
	}{
		{"{status: 401}", 401, none, true},
		{"{status: 401}", 403, failed, false},
		{"{status: [401, 403]}", 403, none, true},
		{"{status: 4xx}", 399, none, false},
		{"{status: 4xx}", 400, none, true},
		{"{status: 4XX}", 499, none, true},
		{"{status: 4xx}", 500, none, false},
		{"{status: [2xx, 400-404]}", 404, none, true},
		{"{status: [2xx, 400-404]}", 405, none, false},
		{"{status: 1xx}", 101, none, true},
		{"{header: {x-login: failed}}", 200, failed, true},
		{"{header: {x-login: fail}}", 200, failed, false},
		{"{header: {x-login: [no, failed]}}", 200, failed, true},
		{`{header: {x-login: "*"}}`, 200, failed, true},
		{`{header: {x-login: "*"}}`, 200, map[string][]string{"X-Login": {""}}, false},
		{`{header: {x-login: "*"}}`, 200, none, false},
		{`{status: 2xx, header: {X-Login: "*"}}`, 200, failed, true},
		{`{status: 2xx, header: {X-Login: "*"}}`, 200, none, false},
		{`{status: 2xx, header: {X-Login: "*"}}`, 401, failed, false},
		{`{header: {X-Login: failed, X-Other: "*"}}`, 401, failed, false},
	} {
		rule := compiled(t, fmt.Sprintf("rules: [{name: a, limit: sliding_log 5/1m, count_if: %s}]", test.countIf)).Rules()[0]
		if got := rule.Counts(test.status, test.header); got != test.want || !rule.HasCountIf() {
			t.Errorf("%s counts %d %v: %v", test.countIf, test.status, test.header, got)
		}
	}
	rule := compiled(t, "rules: [{name: a, limit: 5/1m}]").Rules()[0]
	if rule.HasCountIf() || !rule.Counts(200, nil) {
		t.Error("a rule without count_if does not count each request")
	}
}
