package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// TestListsReadThePathItself: a deny list means its path, however many others were met.
func TestListsReadThePathItself(t *testing.T) {
	file, err := rules.Parse("rules.yaml", []byte(`
deny: {endpoint: [/internal]}
rules: [{name: a, key: [endpoint], limit: 5/1m}]`))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range bounds.Endpoints {
		set.Endpoints().Request(fmt.Sprint("/scan/", i), time.UnixMicro(1))
	}
	if got := set.Listed(&rules.Request{Path: "/internal"}); got != rules.Denied {
		t.Errorf("the path is %v", got)
	}
}

// TestEndpointsAreCountedByThemselves: by the route, or where no router chose one by the path, of
// which only so many are told apart.
func TestEndpointsAreCountedByThemselves(t *testing.T) {
	file, err := rules.Parse("rules.yaml", []byte("rules: [{name: a, key: [service, endpoint], limit: 5/1m}]"))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	key := func(r rules.Request) string {
		key, ok := set.Rules()[0].AppendKey(nil, &r)
		if !ok {
			t.Fatalf("%+v has no key", r)
		}
		set.Endpoints().Request(r.Path, time.UnixMicro(1))
		return string(key)
	}
	for request, want := range map[*rules.Request]string{
		{Service: "shop", Path: "/a"}:                         "service=4:shop endpoint=2:/a",
		{Service: "shop", Path: "/a/1", Route: "GET /a/{id}"}: "service=4:shop endpoint=11:GET /a/{id}",
		{Path: "/b"}: "service=- endpoint=2:/b",
		{}:           "service=- endpoint=-",
		{Path: "/" + strings.Repeat("x", 2*bounds.Text)}: "service=- endpoint=7:(other)",
	} {
		if got := key(*request); got != want {
			t.Errorf("%+v is counted by %s, not by %s", request, got, want)
		}
	}
	keys := make(map[string]bool)
	for i := range 3 * bounds.Endpoints {
		keys[key(rules.Request{Path: fmt.Sprint("/scan/", i)})] = true
	}
	if len(keys) > bounds.Endpoints || !keys["service=- endpoint=7:(other)"] {
		t.Errorf("%d keys", len(keys))
	}
	if got := key(rules.Request{Path: "/b"}); got != "service=- endpoint=2:/b" {
		t.Errorf("a path that was there before the others is counted by %s", got)
	}
}
