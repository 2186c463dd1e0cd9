package rules_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirproject/weir/rules"
)

// TestExcepted: of the exceptions that name a request, those that decide.
func TestExcepted(t *testing.T) {
	override := func(id, limit string, values ...string) rules.Exception {
		return rules.Exception{ID: id, Kind: rules.Overridden, Rule: "both", Values: values, Limit: []string{limit}}
	}
	of := func(id string, kind rules.ExceptionKind, rule, by, value string) rules.Exception {
		return rules.Exception{ID: id, Kind: kind, Rule: rule, Component: by, Values: []string{value}, Why: "for " + id}
	}
	set := excepted(t, standing,
		of("block-net", rules.Blocked, "", "", "203.0.113.0/24"), of("block-one", rules.Blocked, "", "", "203.0.113.9"),
		of("allow-one", rules.LetPass, "", "", "203.0.113.9"), of("allow-key", rules.LetPass, "", "header.X-Key", "ours-*"),
		of("block-job", rules.Blocked, "both", "path.id", "9"), of("allow-job", rules.LetPass, "both", "path.id", "8"),
		override("wide", "4/1m", "10.0.0.0/8", "*"), override("narrow", "5/1m", "10.1.0.0/16", "*"), override("exact", "6/1m", "10.1.0.1", "7"))
	job := func(client, id string) rules.Request {
		return rules.Request{Path: "/jobs/" + id, Client: netip.MustParseAddr(client)}
	}
	for _, test := range []struct {
		request    rules.Request
		file, rule string
	}{
		{address("203.0.113.1"), "[block-net]", "[]"},
		{address("203.0.113.9"), "[block-net block-one]", "[]"}, // a block goes before an allow
		{address("192.0.2.1"), "[]", "[]"},                      // that is the file's own list
		{rules.Request{Attributes: attributes{"header X-Key": "ours-1"}}, "[allow-key]", "[]"},
		{job("10.1.0.1", "9"), "[]", "[block-job]"}, // and before other limits
		{job("10.1.0.1", "8"), "[]", "[allow-job]"},
		{job("10.1.0.1", "7"), "[]", "[exact]"},
		{job("10.1.0.1", "6"), "[]", "[narrow]"},
		{job("10.2.0.1", "6"), "[]", "[wide]"},
		{job("2001:db8::1", "6"), "[]", "[]"},
	} {
		file, rule := ids(set.Excepted(&test.request)), ids(set.Rules()[1].Excepted(&test.request))
		if file != test.file || rule != test.rule {
			t.Errorf("%v %s: %s and %s, want %s and %s", test.request.Client, test.request.Path, file, rule, test.file, test.rule)
		}
	}
	if list := set.Excepted(&rules.Request{Client: netip.MustParseAddr("203.0.113.1")}); list[0].Why != "for block-net" {
		t.Errorf("%+v", list)
	}
	if list := set.Rules()[0].Excepted(&rules.Request{User: "ann"}); list != nil { // of a rule without any
		t.Errorf("%v", list)
	}
	if unfit := set.Unfit(); len(unfit) > 0 {
		t.Errorf("%v do not fit", unfit)
	}
}

func ids(list []rules.Exception) string {
	names := []string{}
	for _, e := range list {
		names = append(names, e.ID)
	}
	return fmt.Sprint(names)
}
