package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/rules"
)

func poolOf(t *testing.T, fields string) *pool {
	t.Helper()
	set, err := rules.Load("f", []byte("rules: []\nservices: [{name: s, "+fields+"}]"))
	if err != nil {
		t.Fatal(err)
	}
	return newPool(set.Services()[0], nil)
}

// picks are the hosts of so many requests that end at once.
func (p *pool) picks(n int) string {
	var hosts []string
	for range n {
		m, _, _ := p.pick(time.Now(), 0, true, true)
		m.active.Add(-1)
		hosts = append(hosts, m.URL.Host)
	}
	return strings.Join(hosts, "")
}

func TestRoundRobinIsSmoothByWeight(t *testing.T) {
	p := poolOf(t, "addresses: [http://a weight 3, http://b, http://c]")
	if got := p.picks(10); got != "abacaabaca" {
		t.Errorf("%s", got)
	}
	counts := make(map[rune]int)
	for _, c := range p.picks(500) {
		counts[c]++
	}
	if fmt.Sprint(counts) != "map[97:300 98:100 99:100]" {
		t.Error(counts)
	}
}

func TestLeastRequestsByWeight(t *testing.T) {
	p := poolOf(t, "balance: least_requests, addresses: [http://a weight 3, http://b, http://c]")
	for range 50 { // none ends
		p.pick(time.Now(), 0, true, true)
	}
	var active []int64
	for i := range p.members {
		active = append(active, p.members[i].active.Load())
	}
	if !slices.Equal(active, []int64{30, 10, 10}) {
		t.Error(active)
	}
	p.members[0].active.Add(-30)
	if got := p.picks(3); got != "aaa" {
		t.Errorf("%s, and a has no requests", got)
	}
	idle := poolOf(t, "balance: least_requests, addresses: [http://a, http://b, http://c]")
	if got := idle.picks(6); strings.Count(got, "a") != 2 || strings.Count(got, "b") != 2 {
		t.Errorf("idle addresses do not take turns: %s", got)
	}
}

// TestEjectionsGrowAndEnd: an address is left out after failures in a row, for longer each time up to a bound, and is
// as good as new after a response.
func TestEjectionsGrowAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poolOf(t, "addresses: [http://a, http://b], health: {failures: 3, eject: 10s, eject_max: 1m}")
		a, b := &p.members[0], &p.members[1]
		fail := func(m *member) time.Duration { return p.failedNow(m, time.Now()) }
		for _, want := range []time.Duration{0, 0} {
			if got := fail(a); got != want {
				t.Fatalf("left out for %v", got)
			}
		}
		a.answered(500) // any response
		if got := []time.Duration{fail(a), fail(a), fail(a)}; !slices.Equal(got, []time.Duration{0, 0, 10 * time.Second}) {
			t.Fatal(got)
		}
		if got := p.picks(4); got != "bbbb" {
			t.Errorf("%s while a is left out", got)
		}
		for range 10 {
			if got := fail(b); got != 0 {
				t.Fatal("the last address is left out")
			}
		}
		for _, want := range []time.Duration{20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
			time.Sleep(time.Until(time.Unix(0, a.until.Load())))
			b.answered(200)
			if got := p.picks(4); strings.Count(got, "a") != 2 {
				t.Fatalf("%s after the time", got)
			}
			if got := fail(a); got != want {
				t.Fatalf("left out for %v, want %v", got, want)
			}
		}
		time.Sleep(time.Minute)
		a.answered(200)
		if got := []time.Duration{fail(a), fail(a), fail(a)}; !slices.Equal(got, []time.Duration{0, 0, 10 * time.Second}) {
			t.Errorf("after a response: %v", got)
		}
	})
}

// TestEjectedAddressesAreTheLastResort: a request is tried at an ejected address rather than at none.
func TestEjectedAddressesAreTheLastResort(t *testing.T) {
	p := poolOf(t, "addresses: [http://a, http://b], health: {failures: 1}")
	now := time.Now()
	if p.failedNow(&p.members[0], now) == 0 {
		t.Fatal("not left out")
	}
	first, bit, _ := p.pick(now, 0, true, true)
	second, both, _ := p.pick(now, bit, true, true)
	if first.URL.Host != "b" || second == nil || second.URL.Host != "a" {
		t.Fatal(first, second)
	}
	if third, _, _ := p.pick(now, bit|both, true, true); third != nil {
		t.Error("an address is tried twice")
	}
	p.members[1].until.Store(now.Add(time.Hour).UnixNano())
	if m, _, _ := p.pick(now, 0, true, true); m == nil {
		t.Error("no address, because all are ejected")
	}
}

// TestRetriesHaveABudget: ten at once, and a fifth of the requests of the last ten seconds.
func TestRetriesHaveABudget(t *testing.T) {
	p := poolOf(t, "addresses: [http://a, http://b]")
	begin := time.Unix(1_800_000_000, 0)
	for _, step := range []struct {
		after    time.Duration
		requests int
		want     int64 // retries of twice as many attempts
	}{
		{0, 1, 10},
		{time.Second, 999, 190}, // of 1,000 in two seconds, of which ten were retries
		{9 * time.Second, 1, 0},
		{10 * time.Second, 0, 10}, // the first second is out: 1,000 less its request, and less its ten
		{11 * time.Second, 0, 0},
		{time.Minute, 0, 10},
		{time.Minute - time.Hour, 500, 90}, // a clock that stepped back
	} {
		now, retried := begin.Add(step.after), int64(0)
		for range step.requests {
			p.pick(now, 0, true, true)
		}
		for range 2 * max(step.want, 10) {
			if m, _, _ := p.pick(now, 1, false, true); m != nil {
				retried++
			}
		}
		if retried != step.want {
			t.Errorf("after %v: %d retries, want %d", step.after, retried, step.want)
		}
	}
}

// TestUnsentRequestsReachAHealthyAddress: whatever the budget is. Addresses that are left out need the budget.
func TestUnsentRequestsReachAHealthyAddress(t *testing.T) {
	p := poolOf(t, "addresses: [http://a, http://b, http://c], health: {failures: 1}")
	now := time.Now()
	p.failedNow(&p.members[1], now)
	for range 1000 {
		if m, _, healthy := p.pick(now, 1, true, false); m == nil || m.URL.Host != "c" || !healthy {
			t.Fatal("an unsent request finds no address")
		}
	}
	for i := range 12 {
		if m, _, _ := p.pick(now, 1|4, true, true); (m != nil) != (i < 10) {
			t.Errorf("%d: at an address that is left out: %v", i, m)
		}
	}
	if m, _, _ := p.pick(now, 1|4, true, false); m != nil {
		t.Error("an address that is left out is tried without retries")
	}
}

// TestHealthOutlivesReloads: an address that stays in its service keeps its state.
func TestHealthOutlivesReloads(t *testing.T) {
	old := poolOf(t, "addresses: [http://a, http://b], health: {failures: 1}")
	old.failedNow(&old.members[0], time.Now())
	fresh := poolOf(t, "addresses: [http://c, http://a weight 2]")
	fresh.adopt(old)
	if got := fresh.picks(2); got != "cc" {
		t.Error(got)
	}
}

// Clients that leave count in part, and only at an address that answers nobody.
func TestClientsThatLeaveAHungAddress(t *testing.T) {
	s, p := &service{spec: new(rules.Service)}, poolOf(t, "addresses: [http://a, http://b], health: {failures: 2}")
	s.pool.Store(p)
	m, log := &p.members[0], slog.New(slog.DiscardHandler)
	leave := func(n int) {
		for range n {
			s.left(m, m.answers(), context.Canceled, log)
		}
	}
	leave(3)
	m.answered(200)
	leave(3)
	if m.failed.Load() != 1 || p.picks(2) != "ab" {
		t.Errorf("%d failures after three clients", m.failed.Load())
	}
	leave(1)
	if got := p.picks(2); got != "bb" {
		t.Errorf("%s after four clients", got)
	}
	before := m.answers()
	m.answered(200)
	for range 9 {
		s.left(m, before, context.Canceled, log)
	}
	if m.failed.Load() != 0 {
		t.Error("a slow request counts, though the address answers")
	}
}

// A gauge says that the only address fails, though it is used.
func TestTheOnlyAddressIsNotHealthy(t *testing.T) {
	p := poolOf(t, "addresses: [http://a], health: {failures: 2}")
	m := &p.members[0]
	for _, healthy := range []bool{true, false} {
		p.failedNow(m, time.Now())
		if p.state(m, time.Now()).Healthy != healthy || p.picks(1) != "a" {
			t.Errorf("after %d failures: %+v", m.failed.Load(), p.state(m, time.Now()))
		}
	}
}

// Each record of a name is an address, and each keeps its health while the records change.
func TestEachRecordIsAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := rules.Load("f", []byte(`rules: []
services: [{name: s, addresses: [https://pods weight 2, "https://127.0.0.1:81"]}]`))
		if err != nil {
			t.Fatal(err)
		}
		s := &service{spec: set.Services()[0], transport: new(http.Transport)}
		s.pool.Store(newPool(s.spec, nil))
		w := newWatcher(s, slog.New(slog.DiscardHandler))
		var answer atomic.Value
		answer.Store("")
		w.lookup = func(_ context.Context, _, name string) (list []netip.Addr, err error) {
			for _, text := range strings.Fields(answer.Load().(string)) {
				list = append(list, netip.MustParseAddr(text))
			}
			if list == nil {
				return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
			}
			return list, nil
		}
		w.start()
		defer w.end()
		for _, step := range []struct{ answer, want string }{
			{"", "pods 127.0.0.1:81"},
			{"10.0.0.2 ::1 10.0.0.1 10.0.0.2", "10.0.0.1:443 10.0.0.2:443 127.0.0.1:81"},
			{"", "10.0.0.1:443 10.0.0.2:443 127.0.0.1:81"}, // it cannot be resolved: as known
			{"10.0.0.2 10.0.0.3", "10.0.0.2:443 10.0.0.3:443 127.0.0.1:81"},
			{"2001:db8::2", "[2001:db8::2]:443 127.0.0.1:81"},
		} {
			answer.Store(step.answer)
			time.Sleep(2 * resolveEvery)
			synctest.Wait()
			var hosts []string
			p := s.pool.Load()
			for i := range p.members {
				m := &p.members[i]
				hosts = append(hosts, m.host)
				if want := map[bool]int64{true: 1, false: 2}[m.host == "127.0.0.1:81"]; m.weight != want {
					t.Errorf("%s has the weight %d", m.host, m.weight)
				}
				if m.host == "10.0.0.2:443" {
					m.ejected.Add(1)
				}
			}
			if got := strings.Join(hosts, " "); got != step.want {
				t.Errorf("the name has %q: %s, want %s", step.answer, got, step.want)
			}
			if step.answer == "10.0.0.2 10.0.0.3" && p.members[0].ejected.Load() != 3 {
				t.Error("an address that stays has lost its health")
			}
		}
		if name := s.pool.Load().name("[2001:db8::2]:443"); name != "pods" {
			t.Errorf("the certificate of %q is asked for", name)
		}
	})
}

// TestNamesThatRotateKeepTheirAddresses: a name that answers by turns has all of its addresses soon, one that moves has
// the new ones at once, and what is gone for good goes.
func TestNamesThatRotateKeepTheirAddresses(t *testing.T) {
	r := rotation{seen: make(map[netip.Addr]sighting)}
	answer := func(text string) string {
		var list []netip.Addr
		for _, one := range strings.Fields(text) {
			list = append(list, netip.MustParseAddr(one))
		}
		return strings.Trim(fmt.Sprint(r.steady(list)), "[]")
	}
	answer("10.0.0.1 10.0.0.2")
	if got := answer("10.0.0.3 10.0.0.4"); got != "10.0.0.3 10.0.0.4" {
		t.Errorf("a name that moved has %s", got)
	}
	changes, last := 0, ""
	for turn := range 40 {
		got := answer([]string{"10.0.0.1 10.0.0.2", "10.0.0.3 10.0.0.4", "10.0.0.5"}[turn%3])
		if got != last {
			changes, last = changes+1, got
		}
	}
	if last != "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5" || changes > 5 {
		t.Errorf("after %d changes in 40 answers: %s", changes, last)
	}
	if got := answer("2001:db8::1"); got != "2001:db8::1" {
		t.Errorf("another family has %s", got)
	}
	for range keptAnswers {
		last = answer("10.0.0.5")
	}
	for range forgetAnswers {
		answer("10.0.0.5")
	}
	if last != "10.0.0.5" || len(r.seen) != 1 {
		t.Errorf("of what is gone %s stays, %d are known", last, len(r.seen))
	}
}
