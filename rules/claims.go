package rules

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir"
)

// maxSteps bounds the search for the request that needs the most claims.
const maxSteps = 200_000

// claimsOf is an upper bound of the claims that a rule adds to a decision. A rule that is not enforced for any
// key is decided separately.
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

// claimsWith is claimsOf for a rule with this number of limits.
func claimsWith(rule *Rule, limits int) int {
	switch {
	case rule.disabled || rule.mode == Shadow || rule.percent == 0:
		return 0
	case rule.ids != nil && rule.bans != nil:
		return limits + 2
	case rule.ids != nil || rule.bans != nil:
		return limits + 1
	}
	return limits
}

// claims refuses a rule set if some request needs more claims than a decision holds: such a request would be
// answered with an error, whatever its limits have left.
func (b *builder) claims() {
	for _, rule := range b.set.rules {
		rule.claims = claimsOf(rule)
	}
	c := b.set.counter(func(rule *Rule) int { return rule.claims })
	c.steps = maxSteps
	bound := c.total(c.hosts())
	if bound <= weir.MaxClaims {
		b.set.claims = bound
		return
	}
	b.set.claims = weir.MaxClaims
	if found := c.search(); found != nil {
		last := found.rules[len(found.rules)-1]
		b.add(at(last.index, "limit"), "%s; a decision holds at most %d: give these rules fewer limits, or one group",
			found, weir.MaxClaims)
	} else if c.steps < 0 {
		b.add(at(-1, "rules"), "the rules can meet in too many ways to tell whether some request meets more than %d "+
			"limits and bans, the most that a decision holds; the estimate is %d: use fewer conditions, fewer limits, "+
			"or groups",
			weir.MaxClaims, bound)
	}
}

// A claimBound is an upper bound of the claims of a request that reaches a part of the tree. Rules of groups
// are counted separately, since one of each group applies.
type claimBound struct{ alone, grouped int }

func (x claimBound) plus(y claimBound) claimBound {
	return claimBound{x.alone + y.alone, x.grouped + y.grouped}
}

func (x claimBound) or(y claimBound) claimBound {
	return claimBound{max(x.alone, y.alone), max(x.grouped, y.grouped)}
}

// A claimCounter finds the largest number of claims of a request, in two phases. The bound adds up the tree as
// if no condition excluded another; it is fast, and nearly every set is within it. Only where it is exceeded,
// search looks for a request that really needs too many.
//
// Set.stepBound adds up steps of regular expressions in place of claims.
type claimCounter struct {
	set    *Set
	of     func(*Rule) claimBound
	groups int // claims of all groups together
	known  map[any]claimBound
	steps  int // that the search may still take
}

// counter adds up weights of rules: of a group the largest applies.
func (s *Set) counter(weight func(*Rule) int) *claimCounter {
	c := &claimCounter{set: s, known: make(map[any]claimBound)}
	c.of = func(rule *Rule) claimBound {
		if rule.group == 0 {
			return claimBound{alone: weight(rule)}
		}
		return claimBound{grouped: weight(rule)}
	}
	groups := make(map[int]int)
	for _, rule := range s.rules {
		if rule.group != 0 {
			groups[rule.group] = max(groups[rule.group], weight(rule))
		}
	}
	for _, n := range groups {
		c.groups += n
	}
	return c
}

// RedisTime is about how long Redis works at most for one decision of the rules, by the measured figures of
// docs/howto/redis.md. Redis serves no other client meanwhile.
func (s *Set) RedisTime() time.Duration {
	c := s.counter(func(rule *Rule) int {
		most := redisWork(rule.limits)
		for _, limits := range rule.overrides.exact {
			most = max(most, redisWork(limits))
		}
		for i := range rule.overrides.wild {
			most = max(most, redisWork(rule.overrides.wild[i].limits))
		}
		if claimsWith(rule, 1) == 0 {
			return 0
		}
		return most
	})
	return time.Duration(c.total(c.hosts())) * time.Microsecond
}

// redisWork is about how many microseconds Redis works for limits of a decision that has many.
func redisWork(limits []*weir.Limit) (sum int) {
	for _, l := range limits {
		switch {
		case l.Slices() > 0:
			sum += 7 + int(l.Slices())/50
		case l.Itemized():
			sum += 12
		case l.Leases():
			sum += 10
		default: // of two numbers
			sum += 5
		}
	}
	return sum
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

// names are hosts that represent all others.
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

// pathsOf are the paths of a host in lower case.
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
		return c.sum(b.rules)
	}
	if sum, ok := c.known[b]; ok {
		return sum
	}
	sum = c.sum(b.rules)
	for _, q := range b.switches {
		sum = sum.plus(c.switchNode(q))
	}
	c.known[b] = sum
	return sum
}

func (c *claimCounter) sum(list []*Rule) (sum claimBound) {
	for _, rule := range list {
		sum = sum.plus(c.of(rule))
	}
	return sum
}

func (c *claimCounter) switchNode(q *switchNode) (most claimBound) {
	if q.kind == sourceDescriptorKeys {
		return c.descriptors(&q.descriptors)
	}
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

// descriptors is the bound of all descriptors, of which each ends at one node.
func (c *claimCounter) descriptors(n *descriptorNode) claimBound {
	most := c.branch(n.here)
	for _, next := range n.exact {
		most = most.or(c.descriptors(next))
	}
	return most
}

// An example is a request that the search makes up. It decides some attributes; the others are open.
type example struct {
	request Request
	known   map[attribute]string
	rules   []*Rule // once it is complete: those that need claims
	claims  int
}

func (x *example) Header(name string) string     { return x.known[attribute{sourceHeader, name}] }
func (x *example) Query(name string) string      { return x.known[attribute{sourceQuery, name}] }
func (x *example) Cookie(string) string          { return "" }
func (x *example) Descriptor(name string) string { return x.known[attribute{sourceDescriptor, name}] }

// JSON has the values of the body that are known.
func (x *example) JSON() *JSON {
	known := make(knownTexts)
	for a, value := range x.known {
		if a.kind == sourceJSON {
			known[a.name] = value
		}
	}
	return &JSON{known, 0}
}

// at is the example with a longer path.
func (x *example) at(segment string) *example {
	longer := *x
	longer.request.Path += "/" + url.PathEscape(segment)
	return &longer
}

// with is the example with a value of one more attribute.
func (x *example) with(a attribute, value string) *example {
	more := *x
	if more.known = maps.Clone(x.known); more.known == nil {
		more.known = make(map[attribute]string)
	}
	more.known[a] = value
	switch a.kind {
	case sourceMethod:
		more.request.Method = value
	case sourceService:
		more.request.Service = value
	case sourceUser:
		more.request.User = value
	case sourceRoute:
		more.request.Route = value
	case sourceCountry:
		more.request.Country = value
	case sourceASN:
		number, _ := strconv.ParseUint(value, 10, 32)
		more.request.ASN = uint32(number)
	case sourceDescriptorKeys:
		more.request.DescriptorKeys, more.request.DescriptorValues = entriesIn(value)
	case sourceIP:
		more.request.Client, _ = netip.ParseAddr(value)
	}
	return &more
}

// maxShown is the number of rules in an example's text.
const maxShown = 8

// String describes the request and its rules.
func (x *example) String() string {
	r := &x.request
	text := strings.TrimSpace(r.Method + " " + r.Host + r.Path)
	if text == "" || text == "/any" {
		text = strings.TrimSpace("any " + text)
	}
	known := slices.SortedFunc(maps.Keys(x.known), func(a, b attribute) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	for _, a := range known {
		if a.kind != sourceMethod && x.known[a] != "" {
			text += fmt.Sprintf(", %s: %s", strings.TrimSpace(a.kind.String()+" "+a.name), x.known[a])
		}
	}
	var parts []string
	for _, rule := range x.rules[:min(len(x.rules), maxShown)] {
		parts = append(parts, fmt.Sprintf("%s %d", rule.name, rule.claims))
	}
	if more := len(x.rules) - maxShown; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	verb := "meets"
	if slices.ContainsFunc(x.rules, func(rule *Rule) bool { return rule.filter != nil }) {
		verb = "may meet, if regex, any and not are met," // no text that meets several expressions is looked for
	}
	return fmt.Sprintf("a request such as %.300q %s rules with %d limits and bans: %s", text, verb, x.claims,
		strings.Join(parts, ", "))
}

// search tries requests until one needs more claims than a decision holds. The bounds exclude most.
func (c *claimCounter) search() *example {
	for _, host := range slices.Sorted(maps.Keys(c.names())) {
		x := &example{request: Request{Host: host}}
		var open []*branch
		var steps []*step
		for _, p := range c.set.pathsOf(host) {
			open = append(open, &p.all)
			steps = append(steps, &p.root)
		}
		if found := c.assign(x, open); found != nil {
			return found
		}
		if found := c.extend(x, steps, open); found != nil {
			return found
		}
	}
	return nil
}

// extend tries each next segment that rules distinguish. open are the branches that any longer path reaches.
func (c *claimCounter) extend(x *example, steps []*step, open []*branch) *example {
	if c.within(open, nil, steps) {
		return nil
	}
	words := make(map[string]bool)
	open = slices.Clip(open)
	for _, s := range steps {
		for word := range s.named {
			words[word] = true
		}
		open = appendBranches(open, s.deep)
	}
	words[other(words)] = true
	for _, word := range slices.Sorted(maps.Keys(words)) {
		var next []*step
		ending := slices.Clip(open)
		for _, s := range steps {
			for _, n := range []*step{s.named[word], s.one} {
				if n != nil && (word != "" || n != s.one) {
					next = append(next, n)
					ending = appendBranches(ending, n.deep, n.here)
				}
			}
		}
		longer := x.at(word)
		found := c.assign(longer, ending)
		if found == nil && word != "" && len(next) > 0 {
			found = c.extend(longer, next, open)
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// within reports whether no request with these conditions can need too many claims. It ends a search that
// takes too long.
func (c *claimCounter) within(reached []*branch, open []*switchNode, steps []*step) bool {
	if c.steps--; c.steps < 0 {
		return true
	}
	var sum claimBound
	for _, b := range reached {
		if steps == nil {
			sum = sum.plus(c.sum(b.rules))
		} else {
			sum = sum.plus(c.branch(b))
		}
	}
	for _, q := range open {
		sum = sum.plus(c.switchNode(q))
	}
	for _, s := range steps {
		sum = sum.plus(c.step(s))
	}
	return c.total(sum) <= weir.MaxClaims
}

// assign tries each value that rules distinguish for an attribute that is still open.
func (c *claimCounter) assign(x *example, from []*branch) *example {
	reached, open := x.reach(from)
	if c.within(reached, open, nil) {
		return nil
	}
	if len(open) == 0 {
		return c.confirmed(x)
	}
	asked := attribute{open[0].kind, open[0].name}
	for _, value := range valuesThatMatter(asked, open) {
		if found := c.assign(x.with(asked, value), from); found != nil {
			return found
		}
	}
	return nil
}

// confirmed returns the example if Match confirms that it needs too many claims.
func (c *claimCounter) confirmed(x *example) *example {
	x.request.Attributes = x
	for _, rule := range c.set.possible(&x.request) {
		if rule.claims > 0 {
			x.rules = append(x.rules, rule)
			x.claims += rule.claims
		}
	}
	if x.claims <= weir.MaxClaims {
		return nil
	}
	return x
}

// reach follows the known attributes, and returns the branches reached and the switches on open attributes.
func (x *example) reach(from []*branch) (reached []*branch, open []*switchNode) {
	reached = slices.Clone(from)
	for i := 0; i < len(reached); i++ {
		for _, q := range reached[i].switches {
			value, known := x.known[attribute{q.kind, q.name}]
			switch {
			case !known:
				open = append(open, q)
			case value == "":
			case q.kind == sourceDescriptorKeys:
				next, _ := q.descriptors.find(&x.request)
				reached = appendBranches(reached, next)
			case q.kind == sourceIP:
				for j := q.networks.find(x.request.Client); j >= 0; j = q.networks.list[j].parent {
					reached = append(reached, q.networks.list[j].value)
				}
			default:
				reached = appendBranches(reached, q.values[value], q.alsoFor(value), q.any)
			}
		}
	}
	return reached, open
}

func appendBranches(list []*branch, more ...*branch) []*branch {
	for _, b := range more {
		if b != nil {
			list = append(list, b)
		}
	}
	return list
}

// valuesThatMatter are the values of an attribute that switches distinguish, one that represents all others,
// and the empty one. Of networks, the first address of each and the one after its last represent all.
func valuesThatMatter(asked attribute, open []*switchNode) []string {
	values := make(map[string]bool)
	for _, q := range open {
		if q.kind != asked.kind || q.name != asked.name {
			continue
		}
		for value := range q.values {
			values[value] = true
		}
		q.descriptors.examples("", values)
		for i := range q.networks.list {
			prefix := q.networks.list[i].prefix
			values[prefix.Addr().String()] = true
			if after := lastOf(prefix).Next(); after.IsValid() {
				values[after.String()] = true
			}
		}
	}
	switch asked.kind {
	case sourceIP:
	case sourceASN:
		values[otherASN(values)] = true
	default:
		values[other(values)] = true
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

// otherASN is a number that is not in values.
func otherASN(values map[string]bool) string {
	number := 1
	for values[strconv.Itoa(number)] {
		number++
	}
	return strconv.Itoa(number)
}

// other is a word that is not in words.
func other(words map[string]bool) string {
	word := "any"
	for words[word] {
		word += "-other"
	}
	return word
}
