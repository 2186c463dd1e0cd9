package review

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirproject/weir/rules"
)

// A reviewer looks for rules that a client can avoid.
type reviewer struct {
	*Report
	file   *rules.File
	set    *rules.Set
	others []*rules.Rule // that always count, by keys that a client does not choose
}

// maxCompared is the number of rules that are compared with each other, which is work for each pair.
const maxCompared = 1000

// avoidable notes rules that a client can avoid where surely no other rule counts the requests that it then sends.
func (r *Report) avoidable(file *rules.File, set *rules.Set) {
	v := reviewer{Report: r, file: file, set: set}
	v.findOthers()
	for _, rule := range set.Rules() {
		if !rule.Enabled() || !mayRefuse(rule) {
			continue
		}
		s := &file.Rules[rule.Index()]
		v.named(rule, s)
		v.bans(rule, s)
		v.class(rule, s)
		v.member(rule, s)
		if len(set.Rules()) <= maxCompared {
			v.key(rule, s)
			v.conditions(rule, s)
		}
	}
	if len(set.Rules()) > maxCompared {
		r.note("", fmt.Sprintf("there are over %d rules: keys and conditions that a client chooses are not reviewed",
			maxCompared))
	}
	v.spellings()
	v.proxies()
	v.services()
	v.everybody("", file.Allow, file.Deny)
	for _, rule := range set.Rules() {
		if rule.Enabled() {
			v.everybody(rule.Name(), file.Rules[rule.Index()].Allow, nil)
		}
	}
}

func (v *reviewer) note(rule *rules.Rule, format string, args ...any) {
	v.Report.note(rule.Name(), fmt.Sprintf(format, args...))
}

// key notes a key that a client may vary freely, or leave out.
func (v *reviewer) key(rule *rules.Rule, s *rules.Spec) {
	var chosen, optional []string
	wide, budgets := 0, ""
	for _, component := range rule.Components() {
		source, options, _ := strings.Cut(component, " ")
		switch k := keysOfComponent(component, &s.Match); {
		case k.Class == client:
			chosen = append(chosen, source)
		case wideV6(component):
			fmt.Sscanf(options[strings.Index(options, "v6/"):], "v6/%d", &wide)
		}
		if manyEndpoints(component, &s.Match) && len(rule.Components()) > 1 {
			budgets = keysOfComponent(component, &s.Match).Words
		}
		if source != "client.ip" && source != "method" && source != "endpoint" {
			optional = append(optional, source)
		}
	}
	skips := rule.OnMissing() == rules.Skip && len(optional) > 0
	if len(chosen) == 0 && wide == 0 && !skips && budgets == "" || v.behind(rule, &s.Match) {
		return
	}
	switch {
	case len(chosen) > 0:
		v.note(rule, "a client that changes %s with each request has a new key each time, and no rule with another "+
			"key counts all of these requests: unless something before weir checks the value, add a rule with "+
			"key: [client.ip]",
			strings.Join(chosen, " or "))
	case skips:
		v.note(rule, "a request without %s is not counted, because of on_missing: skip, and no other rule counts all "+
			"such requests: add a rule with key: [client.ip], or write on_missing: anonymous",
			strings.Join(optional, ", "))
	case wide == 0:
		v.note(rule, "a client has the limit once for each of its %s, and no rule with another key counts all of "+
			"these requests: add a rule without endpoint in its key", budgets)
	default:
		v.note(rule, "a client with IPv6 has at least a /64, which is 2^%d keys, and no rule with another key counts "+
			"all of these requests: leave v6/%d out", wide-64, wide)
	}
}

// manyEndpoints reports whether a component counts each of several paths separately.
func manyEndpoints(component string, m *rules.Match) bool {
	return component == "endpoint" && (m.Path == "" || strings.ContainsAny(m.Path, "*{"))
}

// bans notes a ban of a key that clients choose: a client that sends another one's value has that one banned.
func (v *reviewer) bans(rule *rules.Rule, s *rules.Spec) {
	if rule.Bans() == nil {
		return
	}
	var chosen []string
	for _, component := range rule.Components() {
		source, _, _ := strings.Cut(component, " ")
		switch {
		case source == "client.ip":
			return
		case keysOfComponent(component, &s.Match).Class == client:
			chosen = append(chosen, source)
		}
	}
	if len(chosen) > 0 {
		v.note(rule, "its ban is of %s, which a client chooses: anyone who sends the value of somebody else has them "+
			"banned; add client.ip to the key, or leave the ban out", strings.Join(chosen, " and "))
	}
}

// takeProven is the advice about values that clients choose.
const takeProven = "unless something before weir sets the value, take user, route or service, or in a rule a descriptor"

// class notes classes of a rule that clients choose.
func (v *reviewer) class(rule *rules.Rule, s *rules.Spec) {
	var names []string
	for _, class := range rule.Classes() {
		names = append(names, class.Name)
	}
	chosenClasses(names, &s.Reserve, &s.Match, func(format string, args ...any) { v.note(rule, format, args...) })
}

// chosenClasses notes classes that clients choose: each may take units that are kept for important requests. The most
// important class is first. match has the conditions of all requests.
func chosenClasses(classes []string, given *rules.Reserve, match *rules.Match, note func(string, ...any)) {
	source, _, _ := strings.Cut(given.By, " ")
	if len(classes) > 1 && source != "" && keysOfComponent(given.By, match).Class == client {
		note("a client that sends %[2]s as %[1]s is of class %[2]s, which is refused last: "+takeProven, source,
			classes[0])
	}
	for i := range max(1, len(classes)) - 1 {
		for _, m := range given.Match[classes[i]] {
			if names := stated(&m); len(names) > 0 {
				note("a client that sends %s is of class %s, which is refused later than others: "+takeProven,
					strings.Join(names, " and "), classes[i])
			}
		}
	}
}

// member notes members that clients choose.
func (v *reviewer) member(rule *rules.Rule, s *rules.Spec) {
	for _, component := range s.Fair.By {
		source, _, _ := strings.Cut(component, " ")
		if keysOfComponent(component, &s.Match).Class == client {
			v.note(rule, "a client that sends many values as %s counts as many members, with the share of each: "+
				takeProven, source)
		}
	}
}

// everybody notes lists that name everybody. An empty rule is the file.
func (v *reviewer) everybody(rule string, allow, deny map[string][]string) {
	for _, source := range slices.Sorted(maps.Keys(allow)) {
		if value := all(allow[source]); value != "" {
			v.Report.note(rule, fmt.Sprintf("allow has %s: %s, so that every request with %s passes without a limit: "+
				"name those that may", source, value, source))
		}
	}
	for _, source := range slices.Sorted(maps.Keys(deny)) {
		if value := all(deny[source]); value != "" {
			v.Report.note(rule, fmt.Sprintf("deny has %s: %s, so that every request with %s is refused: name those "+
				"that are not to be served", source, value, source))
		}
	}
}

// all is the value of a list that names all clients, or, of addresses, the Internet of IPv4 or IPv6; "" without one.
func all(values []string) string {
	for _, value := range values {
		if network, err := netip.ParsePrefix(value); value == "*" || err == nil && network.Bits() == 0 {
			return value
		}
	}
	return ""
}

// wideV6 reports whether a component counts IPv6 addresses by more than the network of a client.
func wideV6(component string) bool {
	_, bits, ok := strings.Cut(component, "v6/")
	return ok && (len(bits) > 2 || bits > "64")
}

// stated are the headers and parameters in the conditions of a match, without its alternatives.
func stated(m *rules.Match) (names []string) {
	for _, table := range []struct {
		kind   string
		values map[string][]string
	}{{"header", m.Header}, {"header", m.Regex.Header}, {"query", m.Query}} {
		for _, name := range slices.Sorted(maps.Keys(table.values)) {
			names = append(names, table.kind+" "+name)
		}
	}
	return names
}

// conditions notes conditions on values that a client chooses.
func (v *reviewer) conditions(rule *rules.Rule, s *rules.Spec) {
	m := s.Match
	names := stated(&m)
	m.Header, m.Regex.Header, m.Query = nil, nil, nil
	if len(names) > 0 && !v.behind(rule, &m) {
		v.note(rule, "a client that leaves out or changes %s is not counted by this rule, and no rule without that "+
			"condition counts all of its requests: add one", strings.Join(names, ", "))
	}
	m = s.Match
	m.Not = nil
	for _, one := range s.Match.Not {
		if len(one.Header)+len(one.Regex.Header)+len(one.Query) == 0 {
			m.Not = append(m.Not, one)
		}
	}
	if len(m.Not) < len(s.Match.Not) && !v.behind(rule, &m) {
		v.note(rule, "a client that sends the headers or parameters below not is not counted by this rule, and no "+
			"rule without that condition counts all of its requests: add one")
	}
}

// findOthers finds the rules that may count requests that a client sends to avoid another rule.
func (v *reviewer) findOthers() {
	for _, rule := range v.set.Rules() {
		m := &v.file.Rules[rule.Index()].Match
		if rule.Enabled() && mayRefuse(rule) && rule.EnforcePercent() == 100 && !rule.Scheduled() &&
			rule.Alias() == "" && !rule.HasCountIf() && !slices.ContainsFunc(rule.Components(), func(c string) bool {
			return keysOfComponent(c, m).Class == client || wideV6(c) || manyEndpoints(c, m) ||
				rule.OnMissing() == rules.Skip && !strings.HasPrefix(c, "client.ip")
		}) {
			v.others = append(v.others, rule)
		}
	}
}

// behind reports whether another rule surely or perhaps counts all requests of the match. A rule of the same group
// takes the place of this one.
func (v *reviewer) behind(rule *rules.Rule, m *rules.Match) bool {
	return slices.ContainsFunc(v.others, func(other *rules.Rule) bool {
		return other != rule && (other.Group() == "" || other.Group() == rule.Group()) &&
			v.mayCover(&v.file.Rules[other.Index()].Match, m)
	})
}

// mayCover reports whether a match may cover another one. Conditions that are not compared, such as expressions and
// alternatives, may.
func (v *reviewer) mayCover(wide, m *rules.Match) bool {
	if len(m.Any)+len(m.DescriptorKeys) > 0 || expressive(m) || strings.Contains(wide.Path+m.Path, "%") {
		return true
	}
	return v.formed(*wide).Covers(v.formed(*m))
}

// expressive reports whether a match has regular expressions; their texts are not compared.
func expressive(m *rules.Match) bool {
	return len(m.Regex.Path)+len(m.Regex.Header)+len(m.Regex.Descriptor) > 0
}

// formed is a match with its path in the form of the file, and the conditions that are compared.
func (v *reviewer) formed(m rules.Match) *rules.Match {
	m.Any, m.Not, m.DescriptorKeys = nil, nil, nil
	m.Regex.Path, m.Regex.Header, m.Regex.Descriptor = nil, nil, nil
	if v.set.PathForm().IgnoreCase {
		m.Path = strings.ToLower(m.Path)
	}
	if v.set.PathForm().DropTrailingSlash && m.Path != "/" {
		m.Path = strings.TrimSuffix(m.Path, "/")
	}
	return &m
}

// named notes routes and services that the file does not have, if it has others.
func (v *reviewer) named(rule *rules.Rule, s *rules.Spec) {
	routes, services := []string{"*"}, []string{"*"}
	for _, route := range v.set.Routes() {
		routes = append(routes, route.Name)
	}
	for _, service := range v.set.Services() {
		services = append(services, service.Name)
	}
	for _, c := range []struct {
		kind         string
		given, known []string
	}{{"route", s.Match.Route, routes}, {"service", s.Match.Service, services}} {
		for _, name := range c.given {
			if len(c.known) > 1 && !slices.Contains(c.known, name) {
				v.note(rule, "match.%s is %s, which is no %s of the file: at the gateway no request meets it; "+
					"there are %s", c.kind, name, c.kind, few(c.known[1:]))
			}
		}
	}
}

// spellings notes paths that a service may read without case. It is one note for all rules.
func (v *reviewer) spellings() {
	if v.set.PathForm().IgnoreCase || slices.Contains(v.file.PathForm, "strict") {
		return
	}
	for _, rule := range v.set.Rules() {
		path := v.file.Rules[rule.Index()].Match.Path
		plain, _, _ := strings.Cut(path, "{")
		sent := strings.ToUpper(plain)
		if !rule.Enabled() || rule.Mode() == rules.Shadow || sent == plain {
			continue
		}
		v.note(rule, "%s is not counted by this rule: if your service takes it for the path in lower case, as Express "+
			"and IIS do, write path_form: ignore-case in the section server; if not, path_form: strict", sent)
		return
	}
}

// widestProxies are the shortest prefixes of trusted networks without a note.
const (
	widestProxiesV4 = 8
	widestProxiesV6 = 32
)

// proxies notes large networks of the Internet: their hosts choose their client address.
func (v *reviewer) proxies() {
	if v.file.ClientHeader != "" && len(v.set.TrustedProxies()) == 0 {
		v.Report.note("", fmt.Sprintf("client_header is %s, and trusted_proxies is empty: the header is read from no "+
			"connection, so behind a proxy all clients have one address, and one key; name the networks of your "+
			"proxies", v.file.ClientHeader))
	}
	for _, network := range v.set.TrustedProxies() {
		if privateNetwork(network) || network.Bits() >= widestProxiesV6 ||
			network.Addr().Is4() && network.Bits() >= widestProxiesV4 {
			continue
		}
		v.Report.note("", fmt.Sprintf("trusted_proxies has %v: whoever connects from there chooses the "+
			"client address, and so the key of each rule by client.ip; name the networks of your proxies", network))
	}
}

// privateNetwork reports whether a network is of private or local addresses alone.
func privateNetwork(network netip.Prefix) bool {
	for _, text := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "169.254.0.0/16",
		"100.64.0.0/10", "fc00::/7", "fe80::/10"} {
		private := netip.MustParsePrefix(text)
		if private.Bits() <= network.Bits() && private.Contains(network.Addr()) {
			return true
		}
	}
	return false
}
