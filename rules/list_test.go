package rules_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir/rules"
)

func TestLists(t *testing.T) {
	set := compiled(t, `
allow:
  client.ip: [192.0.2.7, 198.51.100.0/24, "2001:db8::/32"]
  header.x-key trim lower: [abc, 'star\*', ada*, ada-b*, a*]
  host: status.example.com
deny:
  user: [mallory, bot-*]
  client.ip: 198.51.100.66
  cookie.sid: "*"
rules:
  - name: a
    limit: 1/1m
    match: {path: "/users/{id}"}
    allow: {path.id: [me, "a:b"], method: HEAD}
    deny: {path.id: x*, route: /old}
`)
	for _, test := range []struct {
		name       string
		request    rules.Request
		file, rule rules.Listing
	}{
		{"nobody", rules.Request{}, rules.Unlisted, rules.Unlisted},
		{"an address", rules.Request{Client: netip.MustParseAddr("192.0.2.7")}, rules.Allowed, rules.Unlisted},
		{"mapped", rules.Request{Client: netip.MustParseAddr("::ffff:192.0.2.7")}, rules.Allowed, rules.Unlisted},
		{"its neighbour", rules.Request{Client: netip.MustParseAddr("192.0.2.8")}, rules.Unlisted, rules.Unlisted},
		{"a network", rules.Request{Client: netip.MustParseAddr("198.51.100.1")}, rules.Allowed, rules.Unlisted},
		{"denied within it", rules.Request{Client: netip.MustParseAddr("198.51.100.66")}, rules.Denied, rules.Unlisted},
		{"IPv6 and a zone", rules.Request{Client: netip.MustParseAddr("2001:db8::1%eth0")}, rules.Allowed, rules.Unlisted},
		{"a key", rules.Request{Attributes: attributes{"header X-Key": " ABC "}}, rules.Allowed, rules.Unlisted},
		{"a key that begins so", rules.Request{Attributes: attributes{"header X-Key": "ada-x"}}, rules.Allowed, rules.Unlisted},
		{"another", rules.Request{Attributes: attributes{"header X-Key": "b"}}, rules.Unlisted, rules.Unlisted},
		{"a star", rules.Request{Attributes: attributes{"header X-Key": "star*"}}, rules.Allowed, rules.Unlisted},
		{"no star", rules.Request{Attributes: attributes{"header X-Key": "stars"}}, rules.Unlisted, rules.Unlisted},
		{"a host", rules.Request{Host: "Status.Example.com"}, rules.Allowed, rules.Unlisted},
		{"denied beats allowed", rules.Request{User: "mallory", Client: netip.MustParseAddr("192.0.2.7")}, rules.Denied, rules.Unlisted},
		{"denied by its beginning", rules.Request{User: "bot-7"}, rules.Denied, rules.Unlisted},
		{"whatever is there", rules.Request{Attributes: attributes{"cookie sid": "x"}}, rules.Denied, rules.Unlisted},
		{"the rule's own", rules.Request{Path: "/users/me"}, rules.Unlisted, rules.Allowed},
		{"a path's escapes", rules.Request{Path: "/users/a%3Ab"}, rules.Unlisted, rules.Allowed},
		{"and it denies", rules.Request{Path: "/users/%78yz"}, rules.Unlisted, rules.Denied},
		{"a long cookie", rules.Request{Attributes: attributes{"cookie sid": strings.Repeat("x", 8000)}}, rules.Denied, rules.Unlisted},
		{"denied first", rules.Request{Path: "/users/me", Route: "/old"}, rules.Unlisted, rules.Denied},
		{"a method", rules.Request{Method: "HEAD"}, rules.Unlisted, rules.Allowed},
	} {
		if file, rule := set.Listed(&test.request), set.Rules()[0].Listed(&test.request); file != test.file || rule != test.rule {
			t.Errorf("%s: %v, %v; want %v, %v", test.name, file, rule, test.file, test.rule)
		}
		if n := testing.AllocsPerRun(10, func() { set.Listed(&test.request); set.Rules()[0].Listed(&test.request) }); n != 0 {
			t.Errorf("%s: %v allocations", test.name, n)
		}
	}
}

// TestListsEqualALinearScan, for values that begin alike or lie within each other.
func TestListsEqualALinearScan(t *testing.T) {
	text := rapid.StringMatching(`[ab]{1,4}\*?|\*`)
	network := rapid.Map(rapid.SliceOfN(rapid.IntRange(0, 255), 5, 5), func(n []int) string {
		address := netip.AddrFrom4([4]byte{byte(n[0] % 2), byte(n[1] % 2 * 128), 0, byte(n[3] % 4)})
		prefix, _ := address.Prefix(n[4] % 33)
		return prefix.String()
	})
	rapid.Check(t, func(t *rapid.T) {
		users := rapid.SliceOfNDistinct(text, 1, 8, rapid.ID).Draw(t, "users")
		clients := rapid.SliceOfNDistinct(network, 1, 8, rapid.ID).Draw(t, "clients")
		set, err := rules.Compile(&rules.File{Name: "f", Deny: map[string][]string{"user": users, "client.ip": clients}})
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			r := &rules.Request{User: rapid.StringMatching(`[abc]{0,5}`).Draw(t, "user"),
				Client: netip.AddrFrom4([4]byte{rapid.Byte().Draw(t, "0") % 3, rapid.Byte().Draw(t, "1"), 0, rapid.Byte().Draw(t, "3") % 4})}
			want := slices.ContainsFunc(users, func(v string) bool {
				prefix, wild := strings.CutSuffix(v, "*")
				return r.User != "" && (r.User == v || wild && strings.HasPrefix(r.User, prefix))
			}) || slices.ContainsFunc(clients, func(v string) bool { return netip.MustParsePrefix(v).Contains(r.Client) })
			if got := set.Listed(r) == rules.Denied; got != want {
				t.Fatalf("%q %q: %q %v is denied: %v", users, clients, r.User, r.Client, got)
			}
		}
	})
}

// BenchmarkListed looks up addresses, some of which are listed.
func BenchmarkListed(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			chance := rand.New(rand.NewPCG(1, 2))
			anybody := func() netip.Addr {
				return netip.AddrFrom4([4]byte{byte(1 + chance.IntN(223)), byte(chance.IntN(256)), byte(chance.IntN(256)), byte(chance.IntN(256))})
			}
			seen := make(map[netip.Prefix]bool)
			var list []string
			for len(list) < n {
				if network, _ := anybody().Prefix(16 + chance.IntN(17)); !seen[network] {
					seen[network] = true
					list = append(list, network.String())
				}
			}
			set, err := rules.Compile(&rules.File{Deny: map[string][]string{"client.ip": list}})
			if err != nil {
				b.Fatal(err)
			}
			requests := make([]rules.Request, 4096)
			for i := range requests {
				requests[i].Client = anybody()
			}
			b.ResetTimer()
			for i := range b.N {
				set.Listed(&requests[i%len(requests)])
			}
		})
	}
}

// TestLimitNoneDeniesEach: whatever the request has, and costs; an allow list does not help.
func TestLimitNoneDeniesEach(t *testing.T) {
	set, warnings, err := rules.Lint("rules.yaml", []byte("server: {path_form: strict}\nrules:\n  - {name: closed, match: {path: /a}, limit: none, algorithm: sliding_log, "+
		"cost: 5, allow: {client.ip: 192.0.2.1}, key: [client.ip]}\n"))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if limits := set.Rules()[0].Limits(); len(limits) != 1 || limits[0].String() != "none" {
		t.Errorf("the limit is shown as %v", limits)
	}
	for _, r := range []*rules.Request{{Path: "/a"}, {Path: "/a", Client: netip.MustParseAddr("192.0.2.1")}} {
		if got := set.Match(r, nil)[0].Listed(r); got != rules.Denied {
			t.Errorf("%v: %v", r, got)
		}
	}
	if _, err := rules.Load("rules.yaml", []byte("rules: [{name: a, limit: [none, 5/1m]}]\n")); err == nil {
		t.Error("none beside another limit is no mistake")
	}
}
