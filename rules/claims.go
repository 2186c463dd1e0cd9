package rules

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/weirproject/weir"
)

// MaxClaims is how many limits and bans all rules of one request may have together: as many as a
// decision holds.
const MaxClaims = weir.MaxClaims

// maxSteps bounds the search for the request that needs the most claims.
const maxSteps = 200_000

// claimsOf is how many claims a rule adds to the decision of a request that it matches, at
// most. A rule that is enforced for nobody is decided by itself.
func claimsOf(rule *Rule) int {
	n := len(rule.limits)
	for _, limits := range rule.overrides.exact {
		n = max(n, len(limits))
	}
	for i := range rule.overrides.wild {
		n = max(n, len(rule.overrides.wild[i].limits))
	}
	return claimsWith(rule, n)
}

// claimsWith is claimsOf a rule with so many limits.
func claimsWith(rule *Rule, limits int) int {
	switch {
	case rule.mode == Shadow || rule.percent == 0:
		return 0
	case rule.bans != nil:
		return limits + 1
	}
	return limits
}

// claims refuses a set of rules some request of which needs more claims than a decision holds:
// that request would be answered with an error, whatever its limits have left.
func (b *builder) claims() {
	c := claimCounter{set: b.set, known: make(map[any]claimBound), steps: maxSteps}
	groups := make(map[int]int)
	for _, rule := range b.set.rules {
		rule.claims = claimsOf(rule)
		if rule.group != 0 {
			groups[rule.group] = max(groups[rule.group], rule.claims)
		}
	}
	for _, n := range groups {
		c.groups += n
	}
	bound := c.total(c.hosts())
	if bound <= MaxClaims {
		b.set.claims = bound
		return
	}
	b.set.claims = MaxClaims
	if found := c.search(); found != nil {
		last := found.rules[len(found.rules)-1]
		b.add(at(last.index, "limit"), "%s; a decision holds at most %d: give these rules fewer limits, or one group",
			found, MaxClaims)
	} else if c.steps < 0 {
		b.add(at(-1, "rules"), "the rules can meet in too many ways to tell whether some request meets more than %d "+
			"limits and bans, "+
			"the most that a decision holds; the estimate is %d: use fewer conditions, fewer limits, or groups",
			MaxClaims, bound)
	}
}

// A claimBound is at least as large as the number of claims of any request that reaches a part
// of the tree. Rules of groups are counted apart: of each group only one applies.
type claimBound struct{ alone, grouped int }

func (x claimBound) plus(y claimBound) claimBound {
	return claimBound{x.alone + y.alone, x.grouped + y.grouped}
}

func (x claimBound) or(y claimBound) claimBound {
	return claimBound{max(x.alone, y.alone), max(x.grouped, y.grouped)}
}

// A claimCounter finds how many claims a request can need. First it adds up, part by part of
// the tree, the most that each part can need, as if nothing that one part asks of a request
// excluded what another one asks. Only where that is too much it looks for a request that
// really needs so many.
type claimCounter struct {
	set    *Set
	groups int // claims of all groups together
	known  map[any]claimBound
	steps  int // that the search may still take
}

func (c *claimCounter) total(x claimBound) int { return x.alone + min(x.grouped, c.groups) }

// hosts is the bound of all requests.
func (c *claimCounter) hosts() (most claimBound) {
	for host := range c.names() {
		var sum claimBound
		for _, p := range c.set.pathsOf(host) {
			sum = sum.plus(c.paths(p))
		}
		most = most.or(sum)
	}
	return most
}

// names are hosts of which one is in the place of any host that there may be.
func (c *claimCounter) names() map[string]bool {
	names := map[string]bool{"": true}
	for host := range c.set.exact {
		names[host] = true
	}
	for suffix := range c.set.below {
		names["any."+suffix] = true
	}
	return names
}

// pathsOf are those that are for a host, in small letters.
func (s *Set) pathsOf(host string) (list []*paths) {
	list = append(list, &s.anyHost)
	if p := s.exact[host]; p != nil {
		list = append(list, p)
	}
	for i := 1; i < len(host); i++ {
		if p := s.below[host[i+1:]]; host[i] == '.' && p != nil {
			list = append(list, p)
		}
	}
	return list
}

func (c *claimCounter) paths(p *paths) claimBound { return c.branch(&p.all).plus(c.step(&p.root)) }

func (c *claimCounter) step(s *step) (sum claimBound) {
	if s == nil {
		return sum
	}
	if sum, ok := c.known[s]; ok {
		return sum
	}
	one := c.step(s.one)
	most := c.branch(s.here).or(one)
	for _, next := range s.named {
		most = most.or(c.step(next).plus(one))
	}
	sum = c.branch(s.deep).plus(most)
	c.known[s] = sum
	return sum
}

func (c *claimCounter) branch(b *branch) (sum claimBound) {
	if b == nil {
		return sum
	}
	if len(b.switches) == 0 { // most branches: they are not worth remembering
		return boundOf(b.rules)
	}
	if sum, ok := c.known[b]; ok {
		return sum
	}
	sum = boundOf(b.rules)
	for _, q := range b.switches {
		sum = sum.plus(c.switchNode(q))
	}
	c.known[b] = sum
	return sum
}

func boundOf(list []*Rule) (sum claimBound) {
	for _, rule := range list {
		if rule.group == 0 {
			sum.alone += rule.claims
		} else {
			sum.grouped += rule.claims
		}
	}
	return sum
}

func (c *claimCounter) switchNode(q *switchNode) (most claimBound) {
	anyValue := c.branch(q.any)
	most = anyValue
	for value, next := range q.values {
		most = most.or(c.branch(next).plus(anyValue).plus(c.branch(q.alsoFor(value))))
	}
	sums := make([]claimBound, len(q.networks.list)) // the networks round one stand before it
	for i, network := range q.networks.list {
		sums[i] = c.branch(network.value)
		if network.parent >= 0 {
			sums[i] = sums[i].plus(sums[network.parent])
		}
		most = most.or(sums[i])
	}
	return most
}

// A crowded request meets rules with more limits than a decision holds.
type crowded struct {
	request Request
	said    said
	rules   []*Rule
	claims  int
}

// mostShown is how many rules of a crowded request are named.
const mostShown = 8

// String says which request it is, and which rules it meets.
func (x *crowded) String() string {
	var parts []string
	for _, rule := range x.rules[:min(len(x.rules), mostShown)] {
		parts = append(parts, fmt.Sprintf("%s %d", rule.name, rule.claims))
	}
	if more := len(x.rules) - mostShown; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%s meets rules with %d limits and bans: %s", x.where(), x.claims, strings.Join(parts, ", "))
}

func (x *crowded) where() string {
	r := &x.request
	text := strings.TrimSpace(r.Method + " " + r.Host + r.Path)
	if text == "" || text == "/any" {
		text = strings.TrimSpace("any " + text)
	}
	known := slices.SortedFunc(maps.Keys(x.said), func(a, b attribute) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	for _, a := range known {
		if a.kind != sourceMethod && x.said[a] != "" {
			text += fmt.Sprintf(", %s: %s", strings.TrimSpace(a.kind.String()+" "+a.name), x.said[a])
		}
	}
	return "a request such as " + fmt.Sprintf("%.300q", text)
}

// said are the attributes of a request that was made up.
type said map[attribute]string

func (a said) Header(name string) string     { return a[attribute{sourceHeader, name}] }
func (a said) Query(name string) string      { return a[attribute{sourceQuery, name}] }
func (a said) Cookie(name string) string     { return a[attribute{sourceCookie, name}] }
func (a said) Descriptor(name string) string { return a[attribute{sourceDescriptor, name}] }

// search makes up requests until one of them needs more claims than a decision holds. It leaves
// out what cannot, by the bounds.
func (c *claimCounter) search() *crowded {
	for _, host := range slices.Sorted(maps.Keys(c.names())) {
		r := Request{Host: host}
		var open []*branch
		var steps []*step
		for _, p := range c.set.pathsOf(host) {
			open = append(open, &p.all)
			steps = append(steps, &p.root)
		}
		if found := c.ask(r, nil, open); found != nil {
			return found
		}
		if found := c.walk(r, steps, open); found != nil {
			return found
		}
	}
	return nil
}

// hopeless reports whether no request that meets these conditions can need too much.
func (c *claimCounter) hopeless(open []*branch, steps []*step) bool {
	if c.steps--; c.steps < 0 {
		return true
	}
	var sum claimBound
	for _, b := range open {
		sum = sum.plus(c.branch(b))
	}
	for _, s := range steps {
		sum = sum.plus(c.step(s))
	}
	return c.total(sum) <= MaxClaims
}

// walk makes the path longer by each segment that makes a difference.
func (c *claimCounter) walk(r Request, steps []*step, open []*branch) *crowded {
	if c.hopeless(open, steps) {
		return nil
	}
	words := make(map[string]bool)
	for _, s := range steps {
		for word := range s.named {
			words[word] = true
		}
		if s.deep != nil {
			open = append(open[:len(open):len(open)], s.deep)
		}
	}
	words[other("any", words)] = true // in the place of all that no rule names
	for _, word := range slices.Sorted(maps.Keys(words)) {
		longer := r
		longer.Path += "/" + url.PathEscape(word)
		if found := c.enter(longer, word, steps, open); found != nil {
			return found
		}
	}
	return nil
}

// enter is for paths that go on with a segment.
func (c *claimCounter) enter(r Request, segment string, from []*step, open []*branch) *crowded {
	var steps []*step
	ending := open[:len(open):len(open)]
	for _, s := range from {
		next := []*step{s.named[segment], s.one}
		if segment == "" {
			next = next[:1]
		}
		for _, s := range next {
			if s == nil {
				continue
			}
			steps = append(steps, s)
			for _, b := range []*branch{s.deep, s.here} {
				if b != nil {
					ending = append(ending, b)
				}
			}
		}
	}
	if found := c.ask(r, nil, ending); found != nil || segment == "" || len(steps) == 0 {
		return found
	}
	return c.walk(r, steps, open)
}

// ask gives the request each value that makes a difference to what branches ask of it.
func (c *claimCounter) ask(r Request, known said, from []*branch) *crowded {
	reached, open := known.reach(from)
	if c.steps--; c.steps < 0 {
		return nil
	}
	var sum claimBound
	for _, b := range reached {
		sum = sum.plus(boundOf(b.rules))
	}
	for _, q := range open {
		sum = sum.plus(c.switchNode(q))
	}
	if c.total(sum) <= MaxClaims {
		return nil
	}
	if len(open) == 0 {
		return c.crowded(r, known)
	}
	asked := attribute{open[0].kind, open[0].name}
	for _, value := range valuesThatMatter(asked, open) {
		more := said{asked: value}
		maps.Copy(more, known)
		if found := c.ask(r, more, from); found != nil {
			return found
		}
	}
	return nil
}

// reach is which branches the request comes to by what is known of it, and what they ask besides.
func (a said) reach(from []*branch) (reached []*branch, open []*switchNode) {
	reached = slices.Clone(from)
	for i := 0; i < len(reached); i++ {
		for _, q := range reached[i].switches {
			value, known := a[attribute{q.kind, q.name}]
			switch {
			case !known:
				open = append(open, q)
			case value != "":
				reached = append(reached, q.answered(value)...)
			}
		}
	}
	return reached, open
}

// answered are the branches of a value that is not empty.
func (q *switchNode) answered(value string) (list []*branch) {
	if q.kind == sourceIP {
		for i := q.networks.find(netip.MustParseAddr(value)); i >= 0; i = q.networks.list[i].parent {
			list = append(list, q.networks.list[i].value)
		}
		return list
	}
	for _, b := range []*branch{q.values[value], q.alsoFor(value), q.any} {
		if b != nil {
			list = append(list, b)
		}
	}
	return list
}

// valuesThatMatter are those of an attribute which questions tell apart, one that none of them
// names, and none.
func valuesThatMatter(asked attribute, open []*switchNode) []string {
	values := make(map[string]bool)
	for _, q := range open {
		if q.kind != asked.kind || q.name != asked.name {
			continue
		}
		for value := range q.values {
			values[value] = true
		}
		for i := range q.networks.list {
			prefix := q.networks.list[i].prefix
			values[prefix.Addr().String()] = true
			values[lastOf(prefix).String()] = true
		}
	}
	if asked.kind != sourceIP {
		values[other("any", values)] = true
	}
	values[""] = true
	return slices.Sorted(maps.Keys(values))
}

// lastOf is the last address of a network.
func lastOf(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// other is a word that is none of those.
func other(word string, words map[string]bool) string {
	for words[word] {
		word += "-other"
	}
	return word
}

// crowded is a request that was made up, if it really needs more claims than a decision holds.
func (c *claimCounter) crowded(r Request, known said) *crowded {
	x := &crowded{request: r, said: known}
	x.request.Attributes = known
	for attribute, value := range known {
		switch attribute.kind {
		case sourceMethod:
			x.request.Method = value
		case sourceService:
			x.request.Service = value
		case sourceUser:
			x.request.User = value
		case sourceRoute:
			x.request.Route = value
		case sourceIP:
			x.request.Client, _ = netip.ParseAddr(value)
		}
	}
	for _, rule := range c.set.Match(&x.request, nil) {
		if rule.claims > 0 {
			x.rules = append(x.rules, rule)
			x.claims += rule.claims
		}
	}
	if x.claims <= MaxClaims {
		return nil
	}
	return x
}
