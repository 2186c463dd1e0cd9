package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirproject/weir/rules"
)

// A bench is where news are gathered until they are tried. It belongs to one goroutine;
// what takes long is done by another one, so that news are heard meanwhile.
type bench struct {
	*Keeper
	seats      []seat
	law        *Law
	collisions []Collision

	started bool
	since   time.Time   // when the first news came that waits; zero: none does
	batch   *time.Timer // when it is tried
	trial   chan *trial // where the trial under way will be reported; nil: none is
	due     bool        // another one must follow it
}

// A seat is what is known of a layer.
type seat struct {
	silent  bool
	latest  *News         // good news that is not in force yet
	faulty  bool          // the last news were refused at once: Err is about them
	waiting []func(error) // who wants to know what becomes of it
	file    *rules.File   // what is in force
	told    string        // the complaint that was told last, so that it is not told again
	LayerStatus
}

func newBench(k *Keeper) *bench {
	b := &bench{Keeper: k, seats: make([]seat, len(k.layers)), batch: time.NewTimer(time.Hour)}
	b.batch.Stop()
	now := time.Now()
	for i, y := range k.layers {
		b.seats[i] = seat{silent: true, LayerStatus: LayerStatus{Name: y.Name, Err: errSilent, Since: now}}
	}
	return b
}

// sit hears and tries until ctx is over.
func (b *bench) sit(ctx context.Context) {
	late := time.NewTimer(b.startWithin)
	defer late.Stop()
	for {
		select {
		case h := <-b.heard:
			b.hear(&b.seats[h.layer], &h.News, b.layers[h.layer].AllowEmpty)
			if !b.started && !slices.ContainsFunc(b.seats, func(s seat) bool { return s.silent }) {
				b.begin()
			}
		case <-late.C:
			if !b.started {
				b.begin()
			}
		case <-b.batch.C:
			b.begin()
		case t := <-b.trial:
			b.end(t)
		case <-ctx.Done():
			b.rise(context.Cause(ctx))
			return
		}
		b.publish()
	}
}

// rise ends what is under way, and lets nobody wait for ever.
func (b *bench) rise(why error) {
	b.batch.Stop()
	if b.due = false; b.trial != nil {
		b.end(<-b.trial)
	}
	for i := range b.seats {
		for _, done := range b.seats[i].waiting {
			done(why)
		}
	}
	b.publish()
}

// hear takes news. Bad ones leave good ones that are not in force yet in their place.
func (b *bench) hear(s *seat, n *News, allowEmpty bool) {
	s.silent, s.faulty = false, false
	warned := s.Warning != nil
	s.Warning, s.LeftOut = n.Warning, n.LeftOut
	if n.Warning != nil || warned {
		b.say(Event{Kind: Warned, Layer: s.Name, Revision: n.Revision, Err: n.Warning})
	}
	if err := s.fault(n, allowEmpty); err != nil {
		s.faulty = true
		kind := Refused
		if n.Err != nil && n.Revision == "" {
			kind = Down
		}
		b.complain(s, kind, n.Revision, err)
		n.settle(err)
		return
	}
	s.latest = n
	if n.Done != nil {
		s.waiting = append(s.waiting, n.Done)
	}
	if !b.started {
		return
	}
	now := time.Now()
	if b.since.IsZero() {
		b.since = now
	}
	b.batch.Reset(max(0, min(settleTime, settleMost-now.Sub(b.since))))
}

// fault is what is wrong with news at first sight.
func (s *seat) fault(n *News, allowEmpty bool) error {
	if n.Err != nil {
		return n.Err
	}
	if n.File == nil {
		return errors.New("the source told of neither rules nor an error; this is a fault of its program")
	}
	before := s.file
	if s.latest != nil {
		before = s.latest.File
	}
	if had := len(rulesOf(before)); had > 0 && len(n.File.Rules) == 0 && !allowEmpty {
		return fmt.Errorf("%w: its %d rules stay in force; remove them one by one, or allow this source to be empty", ErrEmpty, had)
	}
	return nil
}

// complain tells what is wrong with a layer, once.
func (b *bench) complain(s *seat, kind EventKind, revision string, err error) {
	text := kind.String()
	if kind == Refused { // while it is down, the reasons may vary
		text += revision + err.Error()
	}
	if s.Err == nil || errors.Is(s.Err, errSilent) {
		s.Since = time.Now()
	}
	s.Err, s.Down = err, kind == Down
	if s.told != text {
		s.told = text
		b.say(Event{Kind: kind, Layer: s.Name, Revision: revision, Err: err})
	}
}

// begin tries all good news that is not in force.
func (b *bench) begin() {
	b.started = true
	if b.trial != nil {
		b.due = true
		return
	}
	b.since, b.due = time.Time{}, false
	t := &trial{Keeper: b.Keeper, law: b.law, collisions: b.collisions, files: make([]*rules.File, len(b.seats))}
	for i := range b.seats {
		s := &b.seats[i]
		t.files[i] = s.file
		if s.latest != nil {
			t.asked = append(t.asked, candidate{layer: i, news: s.latest, waiting: s.waiting,
				same: s.file != nil && s.latest.Revision != "" && s.latest.Revision == s.Revision})
			s.waiting = nil
		}
	}
	b.trial = make(chan *trial, 1)
	go func(report chan<- *trial) {
		t.run()
		report <- t
	}(b.trial)
}

// end takes what came of a trial. Who waits is told last, when Status knows as well.
func (b *bench) end(t *trial) {
	b.trial = nil
	if n := len(t.passed); n > 0 { // with the revisions of what it is made of, in one status
		b.law = t.passed[n-1].law
	}
	var recovered []*seat
	for i := range t.asked {
		if s := &b.seats[t.asked[i].layer]; t.asked[i].err == nil && s.accept(&t.asked[i]) {
			recovered = append(recovered, s)
		}
	}
	for _, p := range t.passed {
		b.enact(p)
	}
	for _, s := range recovered {
		b.say(Event{Kind: Recovered, Layer: s.Name, Revision: s.Revision})
	}
	for _, c := range t.asked {
		// What the source said since then may be wrong in another way, and was reported.
		if s := &b.seats[c.layer]; c.err != nil && !s.faulty {
			b.complain(s, Refused, c.news.Revision, c.err)
		}
	}
	b.announce()
	for _, c := range t.asked {
		for _, done := range c.waiting {
			done(c.err)
		}
	}
	if b.due {
		b.begin()
	}
}

// accept notes that news are in force, and reports whether a complaint is over. News that
// were refused stay where they are: what keeps them out may be another layer's, and change.
// A complaint about later news stays: to clear it would report a bad file as good.
func (s *seat) accept(c *candidate) (recovered bool) {
	if !c.same {
		s.Loaded = time.Now()
	}
	s.file, s.Revision, s.Rules = c.news.File, c.news.Revision, len(c.news.File.Rules)
	if !s.faulty {
		recovered = s.told != ""
		s.told, s.Err, s.Down, s.Since = "", nil, false, time.Time{}
	}
	if s.latest == c.news {
		s.latest = nil
	}
	return recovered
}

func (b *bench) enact(p passed) {
	b.say(Event{Kind: InForce, Layer: p.layer, Revision: p.revision, Changes: p.changes})
	if !slices.Equal(p.collisions, b.collisions) {
		b.collisions = p.collisions
		b.say(Event{Kind: Collided, Collisions: p.collisions})
	}
}

// announce says that the Keeper is ready, once.
func (b *bench) announce() {
	b.publish()
	select {
	case <-b.ready:
	default:
		b.start = b.Status().Err()
		b.say(Event{Kind: Ready, Err: b.start})
		close(b.ready)
	}
}

// say completes an event and tells it.
func (b *bench) say(e Event) {
	b.publish()
	e.Time = time.Now()
	if b.law != nil {
		e.Rules, e.Loaded = len(b.law.File.Rules), b.law.Loaded
	}
	b.tell(e)
}

func (b *bench) publish() {
	status := &Status{Law: b.law, Collisions: b.collisions}
	for i := range b.seats {
		y := b.seats[i].LayerStatus
		if latest := b.seats[i].latest; latest != nil {
			y.Pending = latest.Revision
		}
		status.Layers = append(status.Layers, y)
	}
	b.status.Store(status)
}
