package rules_test

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// TestCoversIsSound compares pairs of matches by all requests of a small world: where one match covers another, each
// request that meets the other meets it.
func TestCoversIsSound(t *testing.T) {
	var world []*rules.Request
	for _, method := range []string{"GET", "HEAD", "POST"} {
		for _, path := range []string{"/", "/a", "/a/", "/a/x", "/a/x/y", "/b"} {
			for _, host := range []string{"", "example.com", "www.example.com", "a.eu.example.com"} {
				for _, client := range []string{"10.0.0.1", "10.1.0.1", "192.0.2.1"} {
					for _, plan := range []string{"", "free", "paid"} {
						world = append(world, &rules.Request{Method: method, Path: path, Host: host,
							Client: netip.MustParseAddr(client), Attributes: attributes{"header X-Plan": plan}})
					}
				}
			}
		}
	}
	covered := 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 11))
		texts := []string{randomMatch(random), randomMatch(random)}
		file, err := rules.Parse("f", []byte("server: {path_form: strict}\nrules:\n- {name: a, limit: 1/1s, match: {"+texts[0]+"}}\n- {name: b, limit: 1/1s, match: {"+texts[1]+"}}"))
		if err != nil {
			t.Fatal(texts, err)
		}
		set, err := rules.Compile(file)
		if err != nil {
			t.Fatal(texts, err)
		}
		if !file.Rules[0].Match.Covers(&file.Rules[1].Match) {
			continue
		}
		covered++
		for _, r := range world {
			if found := set.Match(r, nil); len(found) == 1 && found[0].Name() == "b" {
				t.Fatalf("%q does not cover %q: %+v", texts[0], texts[1], r)
			}
		}
	}
	if covered < 100 {
		t.Errorf("only %d pairs were compared", covered)
	}
}

// randomMatch is a match of few conditions.
func randomMatch(random *rand.Rand) string {
	var parts []string
	for _, part := range []string{
		pick(random, "", "", "method: GET", "method: [POST, HEAD]", "method: [GET, POST]", "method: HEAD"),
		pick(random, "", "path: /**", "path: /a", "path: /a/*", "path: '/a/{id}'", "path: /a/**", "path: /a/x", "path: /a/", "path: /*/x/**", "path: /"),
		pick(random, "", "", "", "host: example.com", "host: '*.example.com'", "host: ['*.eu.example.com', WWW.example.com]"),
		pick(random, "", "", "", "client: 10.0.0.0/8", "client: [10.1.0.0/16, 192.0.2.1]", "client: 10.0.0.1"),
		pick(random, "", "", "", "header: {X-Plan: free}", "header: {x-plan: '*'}", "header: {X-Plan: [free, paid]}", "not: {header: {X-Plan: free}}"),
	} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}
