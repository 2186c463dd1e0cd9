package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/pause"
	"github.com/weirproject/weir/rules"
)

const (
	resolveEvery = 5 * time.Second // a name of an address
	resolveTime  = 5 * time.Second

	// A name may answer with some of its addresses, and with others the next time. One that was absent and came back is
	// kept through so many answers without it, five minutes; one that was never absent goes at once.
	keptAnswers   = 60
	forgetAnswers = 2 * keptAnswers
)

// records are the addresses that names have, sorted.
type records map[string][]netip.Addr

// A rotation has the latest answers of a name.
type rotation struct {
	turn int // number of the answer
	seen map[netip.Addr]sighting
}

// A sighting is the last answer with an address.
type sighting struct {
	turn int
	back bool // it was absent from an answer before
}

// steady is an answer with the addresses that are absent by turns.
func (r *rotation) steady(answer []netip.Addr) []netip.Addr {
	r.turn++
	for _, a := range answer {
		s, known := r.seen[a]
		r.seen[a] = sighting{r.turn, s.back || known && s.turn < r.turn-1}
	}
	for a, s := range r.seen {
		switch absent := r.turn - s.turn; {
		case absent > forgetAnswers:
			delete(r.seen, a)
		case absent > 0 && absent <= keptAnswers && s.back && a.Is4() == answer[0].Is4():
			answer = append(answer, a)
		}
	}
	slices.SortFunc(answer, netip.Addr.Compare)
	return answer
}

// A watcher keeps the pool of a service current: it resolves names, and checks addresses. See Health in
// docs/reference/services.md.
type watcher struct {
	*service
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
	checks *http.Transport // with connections of their own, which need no place among those of requests; nil: no checks
	log    *slog.Logger
	names  map[string]*rotation
	stop   context.CancelFunc // nil: it does not run
	done   sync.WaitGroup
}

func newWatcher(s *service, log *slog.Logger) *watcher {
	w := &watcher{service: s, lookup: net.DefaultResolver.LookupNetIP, log: log,
		names: make(map[string]*rotation)}
	if s.spec.CheckPath != "" {
		w.checks = s.transport.Clone()
		w.checks.MaxConnsPerHost = 0
	}
	return w
}

// start begins what there is to do, unless it runs already.
func (w *watcher) start() {
	names := namesOf(w.spec)
	if w.stop != nil || len(names) == 0 && w.checks == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	w.done.Go(func() { w.run(ctx, names) })
}

// end stops it, and waits until it is over.
func (w *watcher) end() {
	if w.stop == nil {
		return
	}
	w.stop()
	w.done.Wait()
	if w.checks != nil {
		w.checks.CloseIdleConnections()
	}
}

// run resolves the names until the context ends, and checks the addresses of the pool that there is.
func (w *watcher) run(ctx context.Context, names []string) {
	for {
		p := w.pool.Load()
		ofPool, cancel := context.WithCancel(ctx)
		var checks sync.WaitGroup
		if w.checks != nil {
			for i := range p.members {
				checks.Go(func() { w.check(ofPool, &p.members[i]) })
			}
		}
		known := w.changed(ctx, names, p.known)
		cancel()
		checks.Wait()
		if ctx.Err() != nil {
			return
		}
		w.put(known)
	}
}

// changed waits for other records than the known ones, or for the end of the context.
func (w *watcher) changed(ctx context.Context, names []string, known records) records {
	if len(names) == 0 {
		<-ctx.Done()
		return known
	}
	for wait := time.Duration(0); pause.For(wait, ctx.Done()) && ctx.Err() == nil; {
		if found := w.resolve(ctx, names, known); !maps.EqualFunc(found, known, slices.Equal) {
			return found
		}
		wait = resolveEvery - resolveEvery/10 + rand.N(resolveEvery/5)
	}
	return known
}

// resolve looks names up. Those that cannot be are as they are known.
func (w *watcher) resolve(ctx context.Context, names []string, known records) records {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	found := maps.Clone(known)
	if found == nil {
		found = make(records)
	}
	for _, name := range names {
		list, err := w.lookup(ctx, "ip", name)
		if err == nil && len(list) > 0 {
			if w.names[name] == nil {
				w.names[name] = &rotation{seen: make(map[netip.Addr]sighting)}
			}
			found[name] = w.names[name].steady(oneFamily(list))
		}
	}
	return found
}

// oneFamily is the records of IPv4, or else of IPv6: a server that has both is one.
func oneFamily(list []netip.Addr) (family []netip.Addr) {
	for _, a := range list {
		if a = a.Unmap(); a.Is4() {
			family = append(family, a)
		}
	}
	if family == nil {
		family = list
	}
	slices.SortFunc(family, netip.Addr.Compare)
	return slices.Compact(family)
}

// put makes a pool by the records.
func (w *watcher) put(known records) {
	next := newPool(w.spec, known)
	next.adopt(w.pool.Load())
	w.pool.Store(next)
	hosts := make([]string, len(next.members))
	for i := range next.members {
		hosts[i] = next.members[i].host
	}
	w.log.Info("addresses of a service by DNS", "service", w.spec.Name, "addresses", hosts)
}

// namesOf are the hosts of a service that are no addresses of IP.
func namesOf(spec *rules.Service) (names []string) {
	for _, a := range spec.Addresses {
		name := a.URL.Hostname()
		if _, err := netip.ParseAddr(name); err != nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// membersOf are the addresses of a service, one for each record of a name that has any.
func membersOf(spec *rules.Service, known records) (list []member) {
	for _, a := range spec.Addresses {
		hosts := []string{a.URL.Host}
		if found := known[a.URL.Hostname()]; len(found) > 0 {
			hosts = hosts[:0]
			for _, ip := range found {
				hosts = append(hosts, net.JoinHostPort(ip.String(), portOf(&a.URL)))
			}
		}
		for _, host := range hosts {
			if len(list) < bounds.Addresses {
				list = append(list, member{address: &address{Address: a, host: host}, weight: int64(a.Weight)})
			}
		}
	}
	return list
}

func portOf(u *url.URL) string {
	if u.Scheme == "https" {
		return cmp.Or(u.Port(), "443")
	}
	return cmp.Or(u.Port(), "80")
}
