package backtest

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
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
	minute            int64 // of its last request
	inMinute, busiest int32 // requests in that minute, and in the busiest one
	good              bool
	bits              [2]uint64
	more              []uint64 // bits for which there is no room in the array
}

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
	if m := floorDiv(at, minute); m != c.minute || c.inMinute == 0 {
		c.minute, c.inMinute = m, 0
	}
	c.inMinute++
	c.busiest = max(c.busiest, c.inMinute)
}

// A detail is what is known of a refused client, from its first refusal on.
type detail struct {
	id                uint64
	requests, refused int64 // if they are not counted by a client's record
	failing           int64
	first, last       int64
	gap               int64 // between its last two requests
	gaps, alike       int64 // gaps of two seconds to five minutes, and those among them that equal the one before
	activeMinutes     int64
	minute            int64
	rules             []int
	agents            map[string]*int64
	paths             map[string]struct{}
}

// maxSeen bounds the distinct agents and paths of a client.
const maxSeen = 256

// count counts a request. Its time is that in the log: spread within a second, a regular pace would not be one.
func (d *detail) count(e *event) {
	at := e.time
	d.requests++
	if e.failing() {
		d.failing++
	}
	if m := floorDiv(at, minute); m != d.minute {
		d.minute = m
		d.activeMinutes++
	}
	// Shorter gaps are those of pages with their resources.
	if gap := at - d.last; d.requests > 1 && gap >= 2*second && gap < 5*minute {
		d.gaps++
		// A tenth is a timer's jitter.
		if diff := max(gap-d.gap, d.gap-gap); diff <= max(gap/10, second/2) {
			d.alike++
		}
		d.gap = gap
	}
	d.last = at
	if n := d.agents[e.agent]; n != nil {
		*n++
	} else if e.agent != "" && len(d.agents) < maxSeen {
		n := int64(1)
		d.agents[strings.Clone(e.agent)] = &n
	}
	if len(d.paths) == maxSeen {
		return
	}
	if _, known := d.paths[e.path]; !known {
		d.paths[strings.Clone(e.path)] = struct{}{}
	}
}

// A census counts clients.
type census struct {
	table   *sampled[client]
	details map[uint64]*detail
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
	return &census{table: newSampled[client](most), details: make(map[uint64]*detail)}
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
	d := c.details[e.id]
	if d == nil {
		if !r.stopped() {
			return x
		}
		d = c.begin(e.id, e.time)
	}
	d.count(e)
	if r.stopped() {
		d.refused++
		if i := r.rule(); i >= 0 && !slices.Contains(d.rules, i) {
			d.rules = append(d.rules, i)
		}
	}
	return x
}

// begin begins the detail of a client. If there are too many, those with the fewest refusals are forgotten.
func (c *census) begin(id uint64, at int64) *detail {
	if len(c.details) >= 2*maxDetails {
		list := c.worst()
		for _, d := range list[maxDetails:] {
			delete(c.details, d.id)
		}
	}
	d := &detail{id: id, first: at, last: at, agents: make(map[string]*int64), paths: make(map[string]struct{})}
	c.details[id] = d
	return d
}

// worst are the refused clients, those with the most refusals first.
func (c *census) worst() []*detail {
	list := make([]*detail, 0, len(c.details))
	for _, d := range c.details {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b *detail) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(a.id, b.id))
	})
	return list
}

// top are the clients with the most refusals. Networks stand for their clients where the refusals spread over them.
func (c *census) top(n int, ruleName func(int) string) (list []Client) {
	worst := c.worst()
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
	x := Client{Client: nameOf(d.id), Requests: d.requests, Refused: d.refused, First: timeOf(d.first),
		Last: timeOf(d.last), Failing: d.failing, Agents: int64(len(d.agents)), Paths: int64(len(d.paths))}
	for _, i := range d.rules {
		x.Rules = append(x.Rules, ruleName(i))
	}
	busiest := int32(0)
	if full := c.table.known(d.id); full != nil {
		x.Requests, x.Refused, busiest = full.requests, full.refused, full.busiest
	}
	x.PerSecond = math.Round(float64(busiest)/60*1000) / 1000
	agents := d.counts()
	x.Agent = most(agents)
	x.Looks, x.Why = looks(d, agents, busiest, x.Agent)
	return x
}

// counts are the requests by User-Agent.
func (d *detail) counts() map[string]int64 {
	counts := make(map[string]int64, len(d.agents))
	for agent, n := range d.agents {
		counts[agent] = *n
	}
	return counts
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

// network describes several clients as one.
func (c *census) network(group []*detail, ruleName func(int) string) Client {
	agents, paths := make(map[string]int64), make(map[string]struct{})
	sum := c.client(group[0], ruleName)
	for _, d := range group {
		for agent, n := range d.agents {
			agents[agent] += *n
		}
		for path := range d.paths {
			paths[path] = struct{}{}
		}
	}
	programs := 0
	if sum.Looks == looksProgram {
		programs++
	}
	for _, d := range group[1:] {
		one := c.client(d, ruleName)
		sum.Requests += one.Requests
		sum.Refused += one.Refused
		sum.Failing += one.Failing
		sum.PerSecond += one.PerSecond
		if one.First.Before(sum.First) {
			sum.First = one.First
		}
		if one.Last.After(sum.Last) {
			sum.Last = one.Last
		}
		for _, rule := range one.Rules {
			if !slices.Contains(sum.Rules, rule) {
				sum.Rules = append(sum.Rules, rule)
			}
		}
		if one.Looks == looksProgram {
			programs++
		}
	}
	sum.Client = networkOf(group[0].id).String()
	sum.Agents, sum.Paths, sum.Agent = int64(len(agents)), int64(len(paths)), most(agents)
	sum.Looks, sum.Why = looksUnclear, fmt.Sprintf("%d of its addresses were refused, %d with the same User-Agent; "+
		"a key on the network would count them together", len(group), sharing(group, sum.Agent))
	if 2*programs > len(group) {
		sum.Looks = looksProgram
	} else if sum.Agents >= manyAgents && agents[sum.Agent]*2 < total(agents) {
		sum.Looks = looksPeople
	}
	return sum
}

// sharing is how many of the clients sent this User-Agent.
func sharing(group []*detail, agent string) (n int) {
	for _, d := range group {
		if d.agents[agent] != nil {
			n++
		}
	}
	return n
}

func total(counts map[string]int64) (n int64) {
	for _, one := range counts {
		n += one
	}
	return n
}

// The values of Client.Looks.
const (
	looksProgram = "program"
	looksPeople  = "people"
	looksUnclear = "unclear"
)

const (
	manyAgents = 5
	// fast is the number of requests in a minute that nobody sends by hand, with the resources of pages.
	fast = 600
	// longMinutes is how long people do not go on without a pause.
	longMinutes = 30
)

// programs are words in the User-Agents of programs, in lower case.
var programs = []string{"bot", "crawl", "spider", "slurp", "python", "curl", "wget", "go-http-client", "java/",
	"libwww", "scrapy", "okhttp", "axios", "node-fetch", "ruby", "perl", "php/", "http_request", "httpclient", "feed",
	"rss", "monitor", "probe", "scan", "headless", "phantomjs", "puppeteer", "selenium", "postman", "k6/", "vegeta"}

// looks says whether a client looks like a program or like several people behind one address.
func looks(d *detail, agents map[string]int64, busiest int32, agent string) (looks, why string) {
	name := strings.ToLower(agent)
	for _, word := range programs {
		if strings.Contains(name, word) {
			return looksProgram, fmt.Sprintf("its User-Agent is that of a program: %.80q", agent)
		}
	}
	share := 0.0
	if sum := total(agents); sum > 0 {
		share = float64(agents[agent]) / float64(sum)
	}
	span := (d.last - d.first) / minute
	switch {
	case len(d.agents) >= manyAgents && share < 0.6:
		return looksPeople, fmt.Sprintf("%d User-Agents, the most frequent in %.0f %% of its requests: look before "+
			"you enforce", len(d.agents), 100*share)
	case len(d.agents) == 0:
		return looksUnclear, "the log has no User-Agent of it"
	case busiest >= fast:
		return looksProgram, fmt.Sprintf("%d requests in a minute with %s", busiest,
			plural(len(d.agents), "User-Agent"))
	case d.gaps >= 20 && d.alike*10 >= d.gaps*8:
		return looksProgram, fmt.Sprintf("its requests come at a regular pace: %d of %d gaps equal the one before",
			d.alike, d.gaps)
	case span >= longMinutes && d.activeMinutes*10 >= (span+1)*9:
		return looksProgram, fmt.Sprintf("it sent requests in %d of %d minutes, without a pause", d.activeMinutes,
			span+1)
	}
	return looksUnclear, fmt.Sprintf("%s, at most %d requests in a minute, not at a regular pace",
		plural(len(d.agents), "User-Agent"), busiest)
}

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%s %ss", grouped(int64(n)), thing)
}
