package telemetry

import (
	"strings"
	"sync"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/keytext"
)

// maxRecent is the number of samples that are kept of requests that passed, and of the others.
const maxRecent = 2048

// live has the latest samples.
type live struct {
	mu    sync.Mutex
	rings [2]ring // of requests that passed, and of the others
}

// A ring has the last samples, once it is full from next on.
type ring struct {
	list []Sample
	next int
}

func (r *ring) add(s Sample) {
	if len(r.list) < maxRecent {
		r.list = append(r.list, s)
		return
	}
	r.list[r.next] = s
	r.next = (r.next + 1) % maxRecent
}

// latest is the ith sample from the end.
func (r *ring) latest(i int) *Sample { return &r.list[(r.next+2*len(r.list)-1-i)%len(r.list)] }

func (l *live) add(s Sample) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.Outcome == gate.Passed.String() {
		l.rings[0].add(s)
	} else {
		l.rings[1].add(s)
	}
}

// Matches reports whether a sample is selected.
func (f *Filter) Matches(s *Sample) bool {
	return (f.Rule == "" || f.Rule == s.Rule) && (f.Outcome == "" || f.Outcome == s.Outcome) &&
		(f.Key == "" || f.Key == s.Key || f.Key == s.Client || keytext.Has(s.Key, f.Key) ||
			f.Key == keytext.Described(s.Key))
}

// Recent returns samples of this node, the latest first. A flood of requests that pass does not displace the others.
func (r *Recorder) Recent(f Filter, most int) (list []Sample) {
	l := &r.live
	l.mu.Lock()
	defer l.mu.Unlock()
	passed, others := 0, 0
	for len(list) < most {
		ring, i := &l.rings[0], &passed
		if passed == len(ring.list) || others < len(l.rings[1].list) &&
			l.rings[1].latest(others).At.After(ring.latest(passed).At) {
			ring, i = &l.rings[1], &others
		}
		if *i == len(ring.list) {
			break
		}
		if s := ring.latest(*i); f.Matches(s) {
			list = append(list, *s)
		}
		*i++
	}
	return list
}

// sample makes the sample of an event.
func (r *Recorder) sample(e *event, weight float64) Sample {
	s := Sample{At: e.at, Node: r.Node, Outcome: e.outcome.String(), Reason: e.reason.String(), Cost: e.cost,
		Wait: e.wait, RequestID: e.id.String(), Weight: weight}
	if e.rule != nil {
		s.Rule, s.Unit = e.rule.Name(), e.rule.Unit().String()
	}
	client := ""
	if e.client.IsValid() {
		client = e.client.String()
	}
	key := plainKey(e.key.String())
	if key == "" && e.outcome == gate.Denied && client != "" {
		key = KeyOfClient(client)
	}
	s.Key, s.Hidden = r.shown(key)
	s.Client, _ = r.shown(client)
	method, path, _ := strings.Cut(e.target.String(), " ")
	s.Method = method
	s.Path, _ = r.shown(path)
	return s
}

// ShadowPrefix is the beginning of the keys of shadow rules, as the gate makes them.
const ShadowPrefix = "shadow "

// plainKey is the key without the prefix of keys of shadow rules.
func plainKey(key string) string { return strings.TrimPrefix(key, ShadowPrefix) }

// shown is the text for a key.
func (r *Recorder) shown(key string) (text string, hidden bool) {
	if key == "" || r.Hide == nil {
		return key, false
	}
	return r.Hide(key), true
}
