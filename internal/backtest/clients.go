package backtest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	pathpkg "path"
	"slices"
	"strings"
)

const (
	// maxClients is the number of clients that are known one by one; with more rules than fit their bits, fewer.
	maxClients = 1 << 20
	// maxDetails is the number of refused clients of which more than numbers is known.
	maxDetails = 4096
)

// A client is one that sent requests.
type client struct {
	requests, refused int64
	failing           int64
	minute            int64 // of its last request
	inMinute, busiest int32 // requests in that minute, and in the busiest one
	assets            int32
	robots, good      bool
	bits              [2]uint64
	more              []uint64 // bits for which there is no room in the array
}

// fails reports whether so many of its requests failed that it did hardly anything else: nine in ten, of ten or more.
func (c *client) fails() bool { return c.requests >= 10 && mostlyFailing(c.requests, c.failing) }

func mostlyFailing(requests, failing int64) bool { return failing*10 >= requests*9 }

// set sets a bit.
func (c *client) set(bit int) {
	if bit < 64*len(c.bits) {
		c.bits[bit/64] |= 1 << (bit % 64)
		return
	}
	word := bit/64 - len(c.bits)
	for len(c.more) <= word {
		c.more = append(c.more, 0)
	}
	c.more[word] |= 1 << (bit % 64)
}

func (c *client) has(bit int) bool {
	if bit < 64*len(c.bits) {
		return c.bits[bit/64]>>(bit%64)&1 != 0
	}
	word := bit/64 - len(c.bits)
	return word < len(c.more) && c.more[word]>>(bit%64)&1 != 0
}

// count counts a request.
func (c *client) count(e *event, at int64) {
	c.requests++
	c.good = c.good || e.good
	if e.failing() {
		c.failing++
	}
	if isAsset(e.path) {
		c.assets++
	}
	c.robots = c.robots || e.path == "/robots.txt"
	if m := floorDiv(at, minute); m != c.minute || c.inMinute == 0 {
		c.minute, c.inMinute = m, 0
	}
	c.inMinute++
	c.busiest = max(c.busiest, c.inMinute)
}

// isAsset reports whether a path is of what a browser loads with a page.
func isAsset(path string) bool {
	switch strings.ToLower(pathpkg.Ext(path)) {
	case ".css", ".js", ".mjs", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".avif", ".ico", ".woff", ".woff2",
		".ttf":
		return true
	}
	return false
}

// A detail is what is known of a refused client or key, from its first refusal on.
type detail struct {
	id                uint64
	key               string // "": it is a client
	requests, refused int64
	failing           int64
	first, last       int64
	rules             []int
	agents            map[string]int64
	paths, names      map[string]struct{}
	clients           map[uint64]struct{} // of a key
}

// maxSeen bounds the distinct values of each kind.
const maxSeen = 256

// count counts a request.
func (d *detail) count(e *event) {
	d.requests++
	if e.failing() {
		d.failing++
	}
	d.last = e.time
	if n, known := d.agents[e.agent]; known {
		d.agents[e.agent] = n + 1
	} else if e.agent != "" && len(d.agents) < maxSeen {
		d.agents[strings.Clone(e.agent)] = 1
	}
	see(d.paths, e.path)
	see(d.names, e.user)
	if d.key != "" && len(d.clients) < maxSeen {
		d.clients[e.id] = struct{}{}
	}
}

// see adds a value to those that were seen.
func see(values map[string]struct{}, value string) {
	if value == "" || len(values) == maxSeen {
		return
	}
	if _, known := values[value]; !known {
		values[strings.Clone(value)] = struct{}{}
	}
}

// details are those of refused clients or keys by their id.
type details struct {
	most int // that are surely kept
	by   map[uint64]*detail
}

func newDetails(most int) details { return details{most, make(map[uint64]*detail)} }

// count counts a request, if its client or key was refused before or is refused now. key names a key; "": a client.
func (d *details) count(id uint64, key string, e *event, refused bool) *detail {
	x := d.by[id]
	if x == nil {
		if !refused {
			return nil
		}
		x = d.begin(id, strings.Clone(key), e.time)
	}
	x.count(e)
	if refused {
		x.refused++
	}
	return x
}

// begin begins a detail. If there are too many, those with the fewest refusals are forgotten.
func (d *details) begin(id uint64, key string, at int64) *detail {
	if len(d.by) >= 2*d.most {
		for _, x := range d.worst()[d.most:] {
			delete(d.by, x.id)
		}
	}
	x := &detail{id: id, key: key, first: at, last: at, agents: make(map[string]int64),
		paths: make(map[string]struct{}), names: make(map[string]struct{})}
	if key != "" {
		x.clients = make(map[uint64]struct{})
	}
	d.by[id] = x
	return x
}

// worst are those with the most refusals first.
func (d *details) worst() []*detail {
	return slices.SortedFunc(maps.Values(d.by), func(a, b *detail) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(a.id, b.id))
	})
}

// A census counts clients.
type census struct {
	table   *sampled[client]
	details details
	touched int64 // keeps the compiler from leaving out the look-ups of touch
}

// touch looks up the clients of requests before they are counted: so the processor waits for many of them at once.
func (c *census) touch(events []event) {
	for i := range events {
		if x := c.table.known(events[i].id); x != nil {
			c.touched += x.requests
		}
	}
}

func newCensus(bits int) *census {
	most := maxClients
	if extra := (bits+63)/64 - 2; extra > 0 {
		most = max(1<<14, maxClients/(1+extra/8))
	}
	return &census{table: newSampled[client](most), details: newDetails(maxDetails)}
}

// count counts a request of a client; refused is the rule that refuses it.
func (c *census) count(e *event, at int64, r result) *client {
	var x *client
	if place := c.table.place(e.id); place >= 0 {
		x = &c.table.items[place].v
		x.count(e, at)
		if r.stopped() {
			x.refused++
		} else if x.refused == 0 {
			return x // it has no detail
		}
	}
	if d := c.details.count(e.id, "", e, r.stopped()); d != nil && r.stopped() {
		if i := r.rule(); i >= 0 && !slices.Contains(d.rules, i) {
			d.rules = append(d.rules, i)
		}
	}
	return x
}

// top are the clients with the most refusals. Networks stand for their clients where the refusals spread over them.
func (c *census) top(n int, ruleName func(int) string) (list []Client) {
	worst := c.details.worst()
	joined := c.networks(worst)
	for _, group := range joined {
		list = append(list, c.network(group, ruleName))
	}
	for _, d := range worst {
		if _, within := joined[networkOf(d.id)]; !within {
			list = append(list, c.client(d, ruleName))
		}
	}
	slices.SortFunc(list, func(a, b Client) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Client, b.Client))
	})
	return list[:min(n, len(list))]
}

const (
	// leastInNetwork is the number of refused clients for which their network is shown.
	leastInNetwork = 4
	// mostOfNetwork is the largest share of one client in the refusals of its network, in percent.
	mostOfNetwork = 50
)

// networkOf is the network of a client: /24, or /48 for a /64.
func networkOf(id uint64) netip.Prefix {
	prefix := prefixOf(id)
	bits := 24
	if !prefix.Addr().Is4() {
		bits = 48
	}
	network, _ := prefix.Addr().Prefix(bits)
	return network
}

// networks are those over which refusals spread.
func (c *census) networks(worst []*detail) map[netip.Prefix][]*detail {
	groups := make(map[netip.Prefix][]*detail)
	for _, d := range worst {
		if d.id != idUnknown {
			groups[networkOf(d.id)] = append(groups[networkOf(d.id)], d)
		}
	}
	for network, group := range groups {
		var sum int64
		for _, d := range group {
			sum += d.refused
		}
		if len(group) < leastInNetwork || group[0].refused*100 > sum*mostOfNetwork {
			delete(groups, network)
		}
	}
	return groups
}

// client describes a client.
func (c *census) client(d *detail, ruleName func(int) string) Client {
	x := Client{Client: nameOf(d.id), Evidence: d.evidence()}
	for _, i := range d.rules {
		x.Rules = append(x.Rules, ruleName(i))
	}
	if full := c.table.known(d.id); full != nil {
		x.Requests, x.Refused, x.Failing = full.requests, full.refused, full.failing
		x.Assets, x.Robots = int64(full.assets), full.robots
		x.PerSecond = math.Round(float64(full.busiest)/60*1000) / 1000
	}
	return x
}

// evidence is what the detail knows.
func (d *detail) evidence() Evidence {
	return Evidence{Requests: d.requests, Refused: d.refused, Failing: d.failing, First: timeOf(d.first),
		Last: timeOf(d.last), Agents: int64(len(d.agents)), Agent: most(d.agents), Paths: int64(len(d.paths)),
		Names: int64(len(d.names)), Addresses: int64(max(1, len(d.clients)))}
}

// most is the most frequent text.
func most(counts map[string]int64) (text string) {
	for one, n := range counts {
		if n > counts[text] || n == counts[text] && one < text {
			text = one
		}
	}
	return text
}

// network describes several clients as one. Its agents are those of the one address that has the most.
func (c *census) network(group []*detail, ruleName func(int) string) Client {
	agents := make(map[string]int64)
	paths, names := make(map[string]struct{}), make(map[string]struct{})
	sum := Client{Client: networkOf(group[0].id).String()}
	for _, d := range group {
		for agent, n := range d.agents {
			agents[agent] += n
		}
		maps.Copy(paths, d.paths)
		maps.Copy(names, d.names)
		one := c.client(d, ruleName)
		sum.Evidence.add(&one.Evidence)
		for _, rule := range one.Rules {
			if !slices.Contains(sum.Rules, rule) {
				sum.Rules = append(sum.Rules, rule)
			}
		}
	}
	sum.Agent, sum.Paths, sum.Names = most(agents), int64(len(paths)), int64(len(names))
	return sum
}

// add adds the evidence of another address.
func (x *Evidence) add(one *Evidence) {
	if x.Addresses == 0 || one.First.Before(x.First) {
		x.First = one.First
	}
	if one.Last.After(x.Last) {
		x.Last = one.Last
	}
	x.Requests += one.Requests
	x.Refused += one.Refused
	x.Failing += one.Failing
	x.Assets += one.Assets
	x.PerSecond += one.PerSecond
	x.Addresses++
	x.Agents = max(x.Agents, one.Agents)
	x.Robots = x.Robots || one.Robots
}

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%s %ss", grouped(int64(n)), thing)
}
