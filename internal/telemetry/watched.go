package telemetry

import (
	"math"
	"sync/atomic"

	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/rules"
)

// A scale is the size of the statistics of a rule's keys.
type scale struct {
	slots int // of the table; a power of two
	keys  int // most keys in the sample
	cells int // of a row of a sketch
	heavy int // most keys that are counted because they are frequent
}

// The first rules that are watched are large: about 1.1 MB each with keys of 64 bytes; the others small: 0.35 MB.
var (
	large = scale{slots: 8192, keys: 4096, cells: 8192, heavy: 400}
	small = scale{slots: 2048, keys: 1024, cells: 2048, heavy: 100}
)

const (
	maxWatched = 256 // rules
	maxLarge   = 24
	frequent   = 500 // a key is frequent with 1/500 of the requests of its rule since the last Cut, and
	minHeavy   = 16  // as many requests
	// minSamples is the number of samples of a key that shows that it is frequent: fewer are chance.
	minSamples = 8
	idleCuts   = 6 // after which a frequent key is forgotten
	// generation is the time after which a key without requests is forgotten; it may take twice as long.
	generation = 300 // seconds
)

// A watched has the statistics of the keys of one rule. Recorder.mu guards it.
type watched struct {
	rule   *rules.Rule
	place  *place      // of the rule in force
	counts *tally.Rule // of all its requests
	begun  tally.Counts
	scale  scale
	table  *table

	old      *table // replaced at the last tick: requests that began before may have counted in it
	level    uint   // the sample has 1 of 2^level keys
	index    []uint16
	entries  []entry
	heavy    int        // entries that are not in the sample
	sketches [2]*sketch // of passed and of refused requests that the table does not count; nil: none
	window   window
	opened   int64 // number of the window
	born     int64 // second in which the generation began
	use      useCounts
}

// An entry is a key in the table.
type entry struct {
	hash            uint64
	key             string // "": not known yet
	passed, refused uint32 // since the last Cut
	heavy           bool   // it stands for itself alone
	idle            uint8  // cuts with few requests
	used            bool   // in this generation
	units           uint64 // in this window
	spent           int64  // units, since the last Cut
}

func newWatched(p *place, counts *tally.Rule, size scale, now int64) *watched {
	w := &watched{rule: p.rule, place: p, counts: counts, begun: counts.Read(), scale: size,
		window: windowOf(p.rule), born: now}
	w.replace(math.MaxUint64)
	return w
}

// follow continues with another version of the rule. If its first limit changed, the usage of the open window is
// dropped: the old limit granted a part of it.
func (w *watched) follow(rule *rules.Rule, p *place) {
	w.rule, w.place = rule, p
	p.table.Store(w.table)
	if next := windowOf(rule); next != w.window {
		w.window = next
		for i := range w.entries {
			w.entries[i].units = 0
		}
	}
}

// replace makes a table of the entries, with another threshold.
func (w *watched) replace(below uint64) {
	t := newTable(w.scale.slots, below)
	t.watch = w
	if w.rule.Metered() {
		t.spent = make([]atomic.Int64, w.scale.slots)
		t.dear.Store(w.dear())
		if w.table != nil {
			t.dear.Store(max(w.dear(), w.table.dear.Load()))
		}
	}
	w.index, w.heavy = make([]uint16, w.scale.slots), 0
	for i := range w.entries {
		e := &w.entries[i]
		place := 0
		if e.hash < below {
			place = t.insert(e.hash)
		} else {
			place = t.addHeavy(e.hash)
			w.heavy++
		}
		w.index[place] = uint16(i + 1)
		if e.key != "" {
			t.slots[place].hash.Store(e.hash | isNamed)
		}
	}
	t.room.Add(-int64(len(w.entries)))
	w.old, w.table = w.table, t
	w.place.table.Store(t)
}

// at is the entry of a slot that has a key.
func (w *watched) at(place int) *entry {
	if w.index[place] == 0 {
		w.entries = append(w.entries, entry{hash: w.table.slots[place].hash.Load() &^ isNamed})
		w.index[place] = uint16(len(w.entries))
	}
	return &w.entries[w.index[place]-1]
}

// weight is the number of keys that an entry stands for.
func (w *watched) weight(e *entry) float64 {
	if e.heavy {
		return 1
	}
	return float64(uint64(1) << w.level)
}

// fold takes the counts out of the table.
func (w *watched) fold() {
	t := w.table
	if w.old != nil {
		w.foldOld(t)
	}
	for place := range t.slots {
		if passed, refused, units := t.take(place); passed|refused != 0 {
			w.at(place).add(passed, refused, units)
		}
		if spent := t.takeSpent(place); spent != 0 {
			w.at(place).spent += spent
		}
	}
	if w.level > 0 {
		w.mark()
	}
}

// foldOld takes the counts of the replaced table meanwhile.
func (w *watched) foldOld(t *table) {
	for i := range w.old.slots {
		passed, refused, units := w.old.take(i)
		spent := w.old.takeSpent(i)
		if passed|refused == 0 && spent == 0 {
			continue
		}
		if place, found := t.find(w.old.slots[i].hash.Load() &^ isNamed); found {
			w.at(place).add(passed, refused, units)
			w.at(place).spent += spent
		}
	}
	w.old = nil
}

func (e *entry) add(passed, refused uint32, units uint64) {
	e.passed += passed
	e.refused += refused
	e.units += units
	e.used = true
}

// sum is the number of requests since the last Cut.
func (e *entry) sum() uint64 { return uint64(e.passed) + uint64(e.refused) }

// least is the number of requests since the last Cut that makes a key frequent.
func (w *watched) least() uint64 { return max(minHeavy, w.sum()/frequent) }

// sum is the number of the rule's requests since the last Cut.
func (w *watched) sum() uint64 {
	n := w.counts.Read().Minus(w.begun)
	return n[tally.Passed] + n[tally.Refused] + n[tally.ShadowPassed] + n[tally.ShadowRefused]
}

// An interval may hold 1/heldPart of the keys that are counted beyond the sample because they spend. Most of these are
// chance, and are forgotten after heldCuts.
const (
	heldPart = 8
	heldCuts = 2
)

// dear is the number of units by which a key is surely held: the units since the last Cut are shared by as many keys as
// an interval may hold.
func (w *watched) dear() int64 {
	n := w.counts.Read().Minus(w.begun)
	return int64(n[tally.Units+tally.Spent] / uint64(w.scale.heavy/heldPart))
}

// hold begins to count a key that has spent much.
func (w *watched) hold(hash uint64, key string, units int64) {
	place, found := w.table.find(hash)
	if !found {
		if w.heavy >= w.scale.heavy {
			return
		}
		place = w.table.addHeavy(hash)
		w.table.slots[place].hash.Store(hash | isNamed)
		w.heavy++
		w.at(place).heavy, w.at(place).idle = true, idleCuts-heldCuts
	}
	e := w.at(place)
	e.key = key
	e.spent += units
}

// mark marks the frequent keys of the sample: if one stood for 2^level others, it would distort all.
func (w *watched) mark() {
	least := w.least()
	for i := range w.entries {
		if e := &w.entries[i]; e.sum() >= least {
			e.heavy = true
		}
	}
}

// close ends the window, if another has begun.
func (w *watched) close(now int64) {
	if w.window.seconds == 0 || now/w.window.seconds == w.opened {
		return
	}
	w.opened = now / w.window.seconds
	for i := range w.entries {
		e := &w.entries[i]
		if e.units == 0 {
			continue
		}
		w.use.add(float64(e.units)/w.window.grant, w.weight(e))
		e.units = 0
	}
}

// shrink halves the sample until its keys are few enough.
func (w *watched) shrink() {
	keys, level := len(w.entries)-w.heavy, w.level
	for keys > w.scale.keys {
		level++
		keys = 0
		for i := range w.entries {
			if w.entries[i].hash < belowOf(level) {
				keys++
			}
		}
	}
	if level != w.level {
		w.keep(level, func(e *entry) bool { return e.hash < belowOf(level) || e.heavy })
	}
}

// belowOf is the threshold of hashes at a level.
func belowOf(level uint) uint64 { return math.MaxUint64 >> level }

// keep keeps some entries, in a table of another level. The others, and entries that leave the sample, are
// forgotten.
func (w *watched) keep(level uint, wanted func(*entry) bool) {
	kept := w.entries[:0]
	for i := range w.entries {
		if wanted(&w.entries[i]) {
			kept = append(kept, w.entries[i])
		}
	}
	clear(w.entries[len(kept):])
	w.entries, w.level = kept, level
	w.replace(belowOf(level))
}

// sketch counts requests of a key that the table does not count.
func (w *watched) sketch(e *event, weight float64) {
	kind := 0
	if e.refused {
		kind = 1
	}
	if w.sketches[kind] == nil {
		w.sketches[kind] = newSketch(w.scale.cells)
	}
	w.sketches[kind].add(e.hash, e.key.String(), weight)
}

// promote puts the frequent keys of the sketches into the table, which counts them exactly from now on.
func (w *watched) promote() {
	t, least := w.table, w.least()
	for kind, s := range w.sketches {
		if s == nil {
			continue
		}
		for i := range s.top {
			k := &s.top[i]
			n := uint32(float64(k.count) * s.mean())
			if k.count < minSamples || uint64(n) < least || w.heavy >= w.scale.heavy {
				continue
			}
			if _, found := t.find(k.hash); found {
				continue
			}
			place := t.addHeavy(k.hash)
			t.slots[place].hash.Store(k.hash | isNamed)
			e := w.at(place)
			e.key, e.heavy = k.key, true
			if kind == 0 {
				e.add(n, 0, uint64(n))
			} else {
				e.add(0, n, uint64(n))
			}
			if k.hash >= t.below {
				w.heavy++
			}
		}
	}
}

// next begins the next interval, and the next generation when it is time.
func (w *watched) next(now int64) {
	least, dear := w.sum()/(4*frequent), w.dear()
	w.table.dear.Store(dear)
	idle := false
	for i := range w.entries {
		e := &w.entries[i]
		if e.sum() > least || e.spent > dear/heldPart {
			e.idle = 0
		} else if e.idle < idleCuts {
			e.idle++
		}
		e.passed, e.refused, e.spent = 0, 0, 0
		idle = idle || e.heavy && e.idle == idleCuts
	}
	for _, s := range w.sketches {
		if s != nil {
			s.reset()
		}
	}
	w.begun = w.counts.Read()
	if now-w.born >= generation {
		w.age(now)
	} else if idle {
		w.keep(w.level, w.wanted)
	}
}

// wanted reports whether an entry is in the sample, or still frequent.
func (w *watched) wanted(e *entry) bool {
	if e.idle == idleCuts {
		e.heavy = false
	}
	return e.heavy || e.hash < belowOf(w.level)
}

// age begins the next generation, without the keys that had no request in the last one. If that leaves few, the
// sample grows.
func (w *watched) age(now int64) {
	w.born = now
	keys := 0
	for i := range w.entries {
		if e := &w.entries[i]; !e.heavy && e.used {
			keys++
		}
	}
	level := w.level
	for level > 0 && keys < w.scale.keys/4 {
		level, keys = level-1, 2*keys
	}
	w.keep(level, func(e *entry) bool {
		used := e.used || e.units > 0
		e.used = false
		return w.wanted(e) && used
	})
}
