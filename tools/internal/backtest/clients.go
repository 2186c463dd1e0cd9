package backtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	// maxClients is the number of clients that are known one by one; with more rules than fit their bits, fewer.
	maxClients = 1 << 20
	// maxDetails is the number of refused clients that have more than numbers.
	maxDetails = 4096
)

// A client is one that sent requests.
type client struct {
	requests, refused int64
	failing           int64
	good              bool
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
func (c *client) count(e *event) {
	c.requests++
	c.good = c.good || e.good
	if e.failing() {
		c.failing++
	}
}

// A detail has facts about a refused client or key, from its first refusal on.
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

// see adds a value to the ones seen before.
func see(values map[string]struct{}, value string) {
	if value == "" || len(values) == maxSeen {
		return
	}
	if _, known := values[value]; !known {
		values[strings.Clone(value)] = struct{}{}
	}
}

// details are the details of refused clients or keys by their id.
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

// begin begins a detail. If there are too many, the ones with the fewest refusals are forgotten.
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

// worst are the details with the most refusals first.
func (d *details) worst() []*detail {
	return slices.SortedFunc(maps.Values(d.by), func(a, b *detail) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(a.id, b.id))
	})
}

// clientCounts counts clients.
type clientCounts struct {
	table   *sampled[client]
	details details
	touched int64 // keeps the compiler from leaving out the look-ups of touch
}

// touch looks up the clients of requests before they are counted: so the processor waits for many of them at once.
func (c *clientCounts) touch(events []event) {
	for i := range events {
		if x := c.table.known(events[i].id); x != nil {
			c.touched += x.requests
		}
	}
}

func newClientCounts(bits int) *clientCounts {
	most := maxClients
	if extra := (bits+63)/64 - 2; extra > 0 {
		most = max(1<<14, maxClients/(1+extra/8))
	}
	return &clientCounts{table: newSampled[client](most), details: newDetails(maxDetails)}
}

// count counts a request of a client; refused is the rule that refuses it.
func (c *clientCounts) count(e *event, r result) *client {
	var x *client
	if place := c.table.place(e.id); place >= 0 {
		x = &c.table.items[place].v
		x.count(e)
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

// top are the clients with the most refusals.
func (c *clientCounts) top(n int, ruleName func(int) string) (list []Client) {
	for _, d := range c.details.worst() {
		x := Client{Client: nameOf(d.id), Evidence: d.evidence()}
		for _, i := range d.rules {
			x.Rules = append(x.Rules, ruleName(i))
		}
		if full := c.table.known(d.id); full != nil {
			x.Requests, x.Refused, x.Failing = full.requests, full.refused, full.failing
		}
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b Client) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Client, b.Client))
	})
	return list[:min(n, len(list))]
}

// evidence is the detail as part of a report.
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

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%s %ss", grouped(int64(n)), thing)
}
