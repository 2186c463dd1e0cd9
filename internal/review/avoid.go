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
	file *rules.File
	set  *rules.Set
}

// avoidable notes rules that a client can avoid where no other rule counts what it then sends. The other rule is looked
// for among those that match one example, so the work grows with the rules and not with their pairs.
func (r *Report) avoidable(file *rules.File, set *rules.Set) {
	v := reviewer{r, file, set}
	for _, rule := range set.Rules() {
		if !rule.Enabled() || rule.Mode() == rules.Shadow || rule.EnforcePercent() == 0 {
			continue
		}
		s := &file.Rules[rule.Index()]
		v.named(rule, s)
		v.bans(rule, s)
		x := ExampleOf(v.file, set, rule)
		if x == nil {
			r.Unexamined = append(r.Unexamined, rule.Name())
			continue
		}
		v.key(rule, s, x)
		v.conditions(rule, s)
	}
	v.spellings()
	v.proxies()
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

// key notes a key of which a client may have any number, or that it may leave out.
func (v *reviewer) key(rule *rules.Rule, s *rules.Spec, x *Example) {
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
	if len(chosen) == 0 && wide == 0 && !skips && budgets == "" || v.behind(rule, &s.Match, x) {
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

// manyEndpoints reports whether a component counts each of several paths by itself.
func manyEndpoints(component string, m *rules.Match) bool {
	return component == "endpoint" && (m.Path == "" || strings.ContainsAny(m.Path, "*{"))
}

// bans notes a ban of a key that clients choose: whoever sends the value of somebody else has them banned.
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

// all is the value of a list that names everybody, or, of addresses, the Internet of IPv4 or IPv6; "": there is none.
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

// conditions notes conditions on what a client sends as it likes.
func (v *reviewer) conditions(rule *rules.Rule, s *rules.Spec) {
	m := s.Match
	var names []string
	for _, table := range []struct {
		kind   string
		values map[string][]string
	}{{"header", m.Header}, {"header", m.Regex.Header}, {"query", m.Query}} {
		for _, name := range slices.Sorted(maps.Keys(table.values)) {
			names = append(names, table.kind+" "+name)
		}
	}
	m.Header, m.Regex.Header, m.Query = nil, nil, nil
	if len(names) > 0 && v.alone(rule, &m) {
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
	if len(m.Not) < len(s.Match.Not) && v.alone(rule, &m) {
		v.note(rule, "a client that sends the headers or parameters below not is not counted by this rule, and no "+
			"rule without that condition counts all of its requests: add one")
	}
	m = s.Match
	overridable := func(method string) bool { return slices.Contains([]string{"PUT", "PATCH", "DELETE"}, method) }
	if len(m.Method) > 0 && !slices.ContainsFunc(m.Method, func(one string) bool { return !overridable(one) }) {
		m.Method = nil
		if v.alone(rule, &m) {
			v.note(rule, "a POST with X-HTTP-Method-Override: %s is not counted: if your service honours that "+
				"header, leave method out", s.Match.Method[0])
		}
	}
}

// alone reports whether surely no other rule counts all requests of a match that is wider than the rule's.
func (v *reviewer) alone(rule *rules.Rule, m *rules.Match) bool {
	set, err := rules.Compile(&rules.File{PathForm: v.file.PathForm,
		Rules: []rules.Spec{{Name: "wider", Match: *m, Limit: []string{"1/1s"}}}})
	if err != nil {
		return false
	}
	x := search(m, nil, func(x *Example) bool { return len(set.Match(&x.Request, nil)) > 0 })
	return x != nil && !v.behind(rule, m, x)
}

// behind reports whether another rule surely or perhaps counts all requests of the match, by a key that the client does
// not choose. The example meets the match, so such a rule matches it. A rule of the same group takes the place of this
// one.
func (v *reviewer) behind(rule *rules.Rule, m *rules.Match, x *Example) bool {
	return slices.ContainsFunc(v.set.Match(&x.Request, nil), func(other *rules.Rule) bool {
		s := &v.file.Rules[other.Index()]
		return other != rule && other.Mode() == rules.Enforce && other.EnforcePercent() == 100 &&
			!other.Scheduled() && !other.HasCountIf() && (other.Group() == "" || other.Group() == rule.Group()) &&
			!slices.ContainsFunc(other.Components(), func(c string) bool {
				return keysOfComponent(c, &s.Match).Class == client || wideV6(c) || manyEndpoints(c, &s.Match) ||
					other.OnMissing() == rules.Skip && !strings.HasPrefix(c, "client.ip")
			}) && v.mayCover(&s.Match, m)
	})
}

// mayCover reports whether a match that the example of another one meets may cover that. It is exact for matches
// without expressions, and with any and not in the other one alone. An alternative of any that states what its match
// states too may be met by no request, so it is not compared.
func (v *reviewer) mayCover(wide, m *rules.Match) bool {
	if len(wide.Any)+len(wide.Not) > 0 || expressive(wide) || strings.Contains(wide.Path+m.Path, "%") {
		return true
	}
	formed := v.formed(*wide)
	for i, one := range m.Alternatives() {
		if expressive(&one) || len(one.DescriptorKeys) > 0 || len(m.Any) > 0 && stateAlike(m, &m.Any[i]) {
			continue
		}
		if !formed.Covers(v.formed(one)) {
			return false
		}
	}
	return true
}

// stateAlike reports whether both matches have a condition on the same part of a request.
func stateAlike(a, b *rules.Match) bool {
	both := func(x, y int) bool { return x > 0 && y > 0 }
	return both(len(a.Method), len(b.Method)) || both(len(a.Host), len(b.Host)) || both(len(a.Path), len(b.Path)) ||
		both(len(a.Client), len(b.Client)) || both(len(a.Country), len(b.Country)) || both(len(a.ASN), len(b.ASN)) ||
		both(len(a.Service), len(b.Service)) || both(len(a.User), len(b.User)) || both(len(a.Route), len(b.Route)) ||
		both(len(a.Header), len(b.Header)) || both(len(a.Query), len(b.Query)) ||
		both(len(a.Descriptor), len(b.Descriptor))
}

// expressive reports whether a match has regular expressions, whose texts are not compared.
func expressive(m *rules.Match) bool {
	return len(m.Regex.Path)+len(m.Regex.Header)+len(m.Regex.Descriptor) > 0
}

// formed is a match with its path in the form of the file. It has no any and not: those of the narrower match only
// exclude requests.
func (v *reviewer) formed(m rules.Match) *rules.Match {
	m.Any, m.Not = nil, nil
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

// spellings notes paths whose case a service may ignore. It is one note for all rules.
func (v *reviewer) spellings() {
	if v.set.PathForm().IgnoreCase || slices.Contains(v.file.PathForm, "strict") {
		return
	}
	var first *rules.Rule
	sent, more := "", -1
	for _, rule := range v.set.Rules() {
		s := &v.file.Rules[rule.Index()]
		if !rule.Enabled() || rule.Mode() == rules.Shadow || s.Match.Path == "" && len(s.Match.Regex.Path) == 0 {
			continue
		}
		x := ExampleOf(v.file, v.set, rule)
		if x == nil {
			continue
		}
		x.Path = strings.ToUpper(x.Path)
		if slices.Contains(v.set.Match(&x.Request, nil), rule) {
			continue
		}
		if more++; first == nil {
			first, sent = rule, x.Path
		}
	}
	if first == nil {
		return
	}
	likewise := ""
	if more > 0 {
		likewise = fmt.Sprintf(" (likewise for %d more)", more)
	}
	v.note(first, "%s is not counted by this rule%s: if your service takes it for the path in lower case, as Express "+
		"and IIS do, write path_form: ignore-case in the file; if not, path_form: strict", sent, likewise)
}

// widestProxies are the shortest prefixes of trusted networks without a note.
const (
	widestProxiesV4 = 8
	widestProxiesV6 = 32
)

// proxies notes large networks of the Internet whose hosts choose their client address.
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
