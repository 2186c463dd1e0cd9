package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/ruleimport"
	"github.com/weirproject/weir/tools/ruleimport/importtest"
)

// A kongModel is a plugin as Kong documents it: of those that a request meets the most specific runs, and counts in
// windows of the clock by an identity, or by the address if the request has none.
type kongModel struct {
	consumer, service, route, by string
	minute                       int
	counts                       map[string]int
}

// rank is Kong's precedence; −1: the plugin is not for the request.
func (m *kongModel) rank(user, service, route string) int {
	if m.consumer != "" && m.consumer != user || m.service != "" && m.service != service ||
		m.route != "" && m.route != route {
		return -1
	}
	parts := ""
	for name, part := range map[string]string{"c": m.consumer, "r": m.route, "s": m.service} {
		if part != "" {
			parts += name
		}
	}
	for i, known := range []string{"", "s", "r", "c", "rs", "cs", "cr", "crs"} { // developer.konghq.com, precedence
		if len(known) == len(parts) && strings.Trim(parts, known) == "" {
			return i
		}
	}
	panic(parts)
}

func (m *kongModel) refuses(at int64, user, key, client string) bool {
	identity := "ip " + client
	switch {
	case m.by == "consumer" && user != "":
		identity = "user " + user
	case m.by == "header" && key != "":
		identity = "header " + key
	}
	identity = fmt.Sprint(identity, at/60_000_000)
	if m.counts[identity] >= m.minute {
		return true
	}
	m.counts[identity]++
	return false
}

// withKey is the header X-Key of a request.
type withKey string

func (k withKey) Header(string) string   { return string(k) }
func (withKey) Query(string) string      { return "" }
func (withKey) Cookie(string) string     { return "" }
func (withKey) Descriptor(string) string { return "" }

func TestKongRunsTheMostSpecificPlugin(t *testing.T) {
	t.Parallel()
	services := map[string][]string{"pay": {"pay-a", "pay-b"}, "shop": {"shop-a"}}
	refused := 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 5))
		pick := func(list ...string) string { return list[r.IntN(len(list))] }
		var source strings.Builder
		source.WriteString("_format_version: '3.0'\nservices:\n")
		for _, name := range []string{"pay", "shop"} {
			fmt.Fprintf(&source, "- name: %s\n  url: http://10.0.0.1\n  routes:\n", name)
			for _, route := range services[name] {
				fmt.Fprintf(&source, "  - {name: %s, paths: [/%s]}\n", route, route)
			}
		}
		source.WriteString("plugins:\n")
		var plugins []*kongModel
		seen := make(map[string]bool)
		for range 6 {
			m := &kongModel{consumer: pick("", "ann", "bob"), service: pick("", "pay", "shop"), minute: 1 + r.IntN(4),
				by: pick("ip", "consumer", "header"), counts: make(map[string]int)}
			if m.service != "" {
				m.route = pick(append(services[m.service], "")...)
			}
			scope := m.consumer + "/" + m.service + "/" + m.route
			if seen[scope] {
				continue
			}
			seen[scope] = true
			plugins = append(plugins, m)
			fmt.Fprintf(&source, "- name: rate-limiting\n  config: {minute: %d, limit_by: %s, header_name: X-Key}\n", m.minute, m.by)
			for field, value := range map[string]string{"consumer": m.consumer, "service": m.service, "route": m.route} {
				if value != "" {
					fmt.Fprintf(&source, "  %s: %s\n", field, value)
				}
			}
		}
		_, yaml := importtest.Import(t, "import-kong", kong, source.String())
		rp := importtest.NewReplay(t, yaml)
		at := int64(1_700_000_000_000_000)
		for range 200 {
			at += r.Int64N(2_000_000)
			service := pick("pay", "shop")
			route, user, key := pick(services[service]...), pick("", "ann", "bob", "cleo"), pick("", "k")
			client := pick("192.0.2.1", "192.0.2.2")
			var best *kongModel
			for _, m := range plugins {
				if rank := m.rank(user, service, route); rank >= 0 && (best == nil || rank > best.rank(user, service, route)) {
					best = m
				}
			}
			want := best != nil && best.refuses(at, user, key, client)
			v := rp.Decide(t, at, &rules.Request{Service: service, Route: route, User: user, Path: "/",
				Client: netip.MustParseAddr(client), Attributes: withKey(key)})
			if got := v.Outcome != gate.Passed; got != want {
				t.Fatalf("seed %d: user %q, %s, key %q: refused %t, Kong %t\n%s\n%s", seed, user, route, key, got, want, &source, yaml)
			}
			if want {
				refused++
			}
		}
	}
	if refused < 1000 {
		t.Errorf("only %d requests were refused", refused)
	}
}

func TestKongListsWhatHasNoEqual(t *testing.T) {
	t.Parallel()
	const service = "services:\n- name: a\n  url: http://10.0.0.1\n  routes:\n  - name: r\n    paths: [/a]\n"
	for source, want := range map[string]string{
		service + "    headers: {x: [y]}":                                                    "source:7: headers of a route",
		service + "  - {name: x, paths: [~/b]}":                                              "regular expression",
		service + "  - {paths: [/c]}":                                                        "a route without a name",
		service + "plugins: [{name: rate-limiting-advanced}]":                                "plugin rate-limiting-advanced",
		service + "plugins: [{name: response-ratelimiting}]":                                 "plugin response-ratelimiting",
		service + "plugins: [{name: rate-limiting, config: {day: 1, limit_by: path}}]":       "limit_by path",
		service + "plugins: [{name: rate-limiting, config: {day: 1, policy: cluster}}]":      "policy cluster",
		service + "plugins: [{name: rate-limiting, config: {day: 1, sync_rate: 5}}]":         "sync_rate",
		service + "plugins: [{name: rate-limiting, config: {day: 1, weeks: 5}}]":             `the field "weeks"`,
		service + "plugins: [{name: rate-limiting, config: {day: 1}, consumer_group: a}]":    `"consumer_group"`,
		service + "plugins: [{name: rate-limiting, route: none, config: {day: 1}}]":          "which has no route",
		service + "plugins: [{name: rate-limiting, config: {day: 1, limit_by: credential}}]": "limit_by credential",
		"consumer_groups: []": "consumer_groups",
	} {
		result, _ := importtest.Import(t, "import-kong", kong, source)
		if len(result.Notes) == 0 || !strings.Contains(result.Notes[0].String(), want) {
			t.Errorf("%s\nlists %v, want %s", source, result.Notes, want)
		}
	}
	for source, want := range map[string]string{
		"plugins: [{name: rate-limiting}]":                   "config is missing",
		"plugins: [{name: rate-limiting, config: {}}]":       "config has no limit",
		"plugins: [{name: rate-limiting, config: {day: x}}]": `day is "x"; allowed: a whole number`,
		"consumers: [{plugins: []}]":                         "a consumer needs a username",
		"services: [{url: http://a}]":                        "a service needs a name",
		"services: {}":                                       "services must be a list",
	} {
		_, err := ruleimport.Read("import-kong", kong, []ruleimport.Text{{Name: "source", Data: []byte(source)}}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", source, err, want)
		}
	}
}

func TestPage(t *testing.T) { importtest.Page(t, "import-kong", kong, "kong.yaml") }

func FuzzImport(f *testing.F) {
	f.Add("services: [{name: a, url: http://a:1/b, routes: [{name: r, paths: [/a], plugins: [{name: rate-limiting, config: {day: 1}}]}]}]")
	f.Add("plugins: [{name: rate-limiting, config: {second: 1, year: 2, limit_by: header, header_name: X}}]")
	f.Fuzz(func(t *testing.T, text string) { importtest.Any(t, "import-kong", kong, text) })
}
