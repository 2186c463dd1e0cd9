package gateway

import (
	"math/bits"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/rules"
)

// A pool chooses the addresses of a service, and leaves out addresses that fail. It is safe for concurrent use.
type pool struct {
	least    bool
	failures int64 // in a row that eject an address
	eject    time.Duration
	most     time.Duration // of one ejection
	checked  bool
	known    records

	mu      sync.Mutex
	members []member
	first   int // of equal ones by least requests
	budget  budget
}

// A member is an address with its part in the round robin.
type member struct {
	*address
	weight int64
	turn   int64       // of the smooth round robin: the largest is next
	down   atomic.Bool // its checks fail
}

// An address belongs to a service as long as the service has it.
type address struct {
	rules.Address
	host      string       // that is connected to: the URL's, or an address that its name has
	active    atomic.Int64 // requests in progress
	failed    atomic.Int64 // in a row
	left      atomic.Int64 // clients that left, in a row
	ejections atomic.Int64 // in a row
	until     atomic.Int64 // Unix time in ns of the end of the last ejection
	ejected   atomic.Uint64
	attempts  [servermetrics.Attempts]atomic.Uint64
}

// A budget bounds retries to a fifth of the requests of the last ten seconds, and ten at least. All requests in
// progress at an address fail at once when it does, so a budget that is saved up must grow with the load.
type budget struct {
	second   int64 // of the last slot
	slots    [10]struct{ requests, retries int64 }
	requests int64 // of all slots
	retries  int64
}

// at moves the slots on to a time.
func (b *budget) at(now time.Time) *struct{ requests, retries int64 } {
	second := now.Unix()
	for i := range min(max(second-b.second, 0), int64(len(b.slots))) {
		old := &b.slots[(second-i)%int64(len(b.slots))]
		b.requests -= old.requests
		b.retries -= old.retries
		*old = struct{ requests, retries int64 }{}
	}
	b.second = max(b.second, second)
	return &b.slots[b.second%int64(len(b.slots))]
}

func (b *budget) request(now time.Time) {
	b.at(now).requests++
	b.requests++
}

// retry takes a retry from the budget, if there is one.
func (b *budget) retry(now time.Time) bool {
	slot := b.at(now)
	if b.retries >= max(10, b.requests/5) {
		return false
	}
	slot.retries++
	b.retries++
	return true
}

func newPool(spec *rules.Service, known records) *pool {
	return &pool{members: membersOf(spec, known), known: known,
		least: spec.LeastRequests, failures: int64(spec.Failures), eject: spec.Eject, most: spec.EjectMax,
		checked: spec.CheckPath != ""}
}

// adopt takes over the budget of an older pool, and the addresses that it has too.
func (p *pool) adopt(old *pool) {
	old.mu.Lock()
	defer old.mu.Unlock()
	p.budget = old.budget
	for i := range p.members {
		for j := range old.members {
			if m := &old.members[j]; m.URL == p.members[i].URL && m.host == p.members[i].host {
				p.members[i].address = m.address
				p.members[i].down.Store(p.checked && m.down.Load())
			}
		}
	}
}

// name is the host of the address that is connected to at a host and port.
func (p *pool) name(address string) string {
	for i := range p.members {
		if p.members[i].host == address {
			return p.members[i].URL.Hostname()
		}
	}
	host, _, _ := net.SplitHostPort(address)
	return host
}

// state is the state of an address for others. The last one is used though it fails.
func (p *pool) state(m *member, now time.Time) servermetrics.Address {
	a := servermetrics.Address{URL: m.URL.Scheme + "://" + m.host, Weight: int(m.weight), InProgress: m.active.Load(),
		Failures: m.failed.Load(), Ejections: m.ejected.Load(), CheckFails: m.down.Load()}
	if left := time.Duration(m.until.Load() - now.UnixNano()); left > 0 {
		a.EjectedFor = left.Seconds()
	}
	a.Healthy = a.EjectedFor == 0 && !a.CheckFails && a.Failures < p.failures
	for i := range m.attempts {
		a.Attempts[i] = m.attempts[i].Load()
	}
	return a
}

// pick chooses an address for a request, and counts the request as in progress there. tried has a bit for each
// address that was tried before; unsent says that no connection was made to them. If all others are ejected, they are
// chosen nevertheless. nil: no address is left, or the budget of retries is spent, which an unsent request needs for
// ejected addresses only; these need more, too.
func (p *pool) pick(now time.Time, tried uint64, unsent, more bool) (m *member, bit uint64, healthy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tried == 0 {
		p.budget.request(now)
	}
	from, healthy := p.candidates(now, tried)
	if from == 0 || tried != 0 && !(healthy && unsent) && !(more && p.budget.retry(now)) {
		return nil, 0, false
	}
	i := p.roundRobin(from)
	if p.least {
		i = p.leastRequests(from)
	}
	p.members[i].active.Add(1)
	return &p.members[i], 1 << i, healthy
}

// candidates are the addresses to choose from, as bits, and whether they are healthy.
func (p *pool) candidates(now time.Time, tried uint64) (from uint64, healthy bool) {
	all := ^uint64(0) >> (64 - len(p.members)) &^ tried
	at := now.UnixNano()
	for i := range p.members {
		if p.members[i].fit(at) {
			from |= 1 << i
		}
	}
	if from &= all; from == 0 {
		return all, false
	}
	return from, true
}

// roundRobin is smooth: of weights 3 and 1 it is a, a, b, a.
func (p *pool) roundRobin(from uint64) (best int) {
	best = bits.TrailingZeros64(from)
	total := int64(0)
	for rest := from; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		m := &p.members[i]
		m.turn += m.weight
		total += m.weight
		if m.turn > p.members[best].turn {
			best = i
		}
	}
	p.members[best].turn -= total
	return best
}

// leastRequests begins at another address each time, so that idle ones take turns.
func (p *pool) leastRequests(from uint64) (best int) {
	p.first++
	best = -1
	for n := range p.members {
		i := (p.first + n) % len(p.members)
		if from&(1<<i) == 0 {
			continue
		}
		if best < 0 || p.members[i].load()*p.members[best].weight < p.members[best].load()*p.members[i].weight {
			best = i
		}
	}
	return best
}

// fit reports whether requests are sent to an address at a time.
func (m *member) fit(at int64) bool { return m.until.Load() <= at && !m.down.Load() }

func (m *member) load() int64 { return m.active.Load() + 1 }

// answered records a response.
func (m *member) answered(status int) {
	m.attempts[min(max(status/100, 1), 5)].Add(1)
	if m.failed.Load() != 0 || m.left.Load() != 0 || m.ejections.Load() != 0 {
		m.well()
	}
}

// well forgets failures.
func (m *member) well() {
	m.failed.Store(0)
	m.left.Store(0)
	m.ejections.Store(0)
	m.until.Store(0)
}

// answers is the number of responses.
func (a *address) answers() (n uint64) {
	for i := 1; i <= 5; i++ {
		n += a.attempts[i].Load()
	}
	return n
}

// failedNow records a failure, and reports for how long it ejects the address; 0: it does not. The last address that
// is not ejected stays. After an ejection one failure is enough for the next.
func (p *pool) failedNow(m *member, now time.Time) (ejected time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := now.UnixNano()
	failed, before := m.failed.Add(1), m.ejections.Load()
	if failed < p.failures && before == 0 || m.until.Load() > at || !p.another(m, at) {
		return 0
	}
	for ejected = p.eject; before > 0 && ejected < p.most; before-- {
		ejected = min(2*ejected, p.most)
	}
	m.ejections.Add(1)
	m.ejected.Add(1)
	m.until.Store(now.Add(ejected).UnixNano())
	return ejected
}

// another reports whether another address is not ejected.
func (p *pool) another(m *member, at int64) bool {
	for i := range p.members {
		if o := &p.members[i]; o.address != m.address && o.fit(at) {
			return true
		}
	}
	return false
}
