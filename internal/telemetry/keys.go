package telemetry

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/weirproject/weir/internal/tally"
)

// A KeyReport is what is known of the keys of a rule, in the last 5 to 10 minutes; for a limit with longer windows,
// in the last 2 to 4 of them.
type KeyReport struct {
	Distinct  uint64
	Histogram []Bar    // nil: the rule has a concurrency limit, whose use is not measured
	WhatIf    []WhatIf // requests are of the same time
	Sampled   int
	Error     float64 // of the shares of WhatIf, with a probability of 95 %: of the sample, and of the model
}

// A KeySample is the statistics of one node about the keys of a rule, in a form that adds up over nodes.
type KeySample struct {
	keys     int     // in the sample
	distinct float64 // that these stand for
	variance float64 // of the number of units
	demand   demand
	peaks    [demandBuckets]float64 // keys by their most units in a window
	hashes   []keyUnits             // the keys with the smallest hashes, in ascending order

	requests, refusals uint64 // exact, of all keys
}

// keyUnits are the units of one key, by the high half of its hash.
type keyUnits struct{ hash, units uint64 }

// mostHashes is the number of keys of a KeySample that are compared between nodes.
const mostHashes = 64

// Sample returns the statistics of a rule's keys on this node; nil: they are not watched.
func (r *Recorder) Sample(rule string) *KeySample {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.find(rule); w != nil {
		return w.sample()
	}
	return nil
}

// Keys reports on a rule's keys, with the samples of other nodes; nil: they are not watched here.
func (r *Recorder) Keys(rule string, others ...*KeySample) *KeyReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.find(rule)
	if w == nil {
		return nil
	}
	return w.window.report(append(others[:len(others):len(others)], w.sample()))
}

func (r *Recorder) find(rule string) *watched {
	i := slices.IndexFunc(r.watched, func(w *watched) bool { return w.rule.Name() == rule })
	if i < 0 {
		return nil
	}
	r.watched[i].fold()
	return r.watched[i]
}

// sample sums the two generations and the open window.
func (w *watched) sample() *KeySample {
	n := w.counts.Read().Minus(w.aged[1])
	s := &KeySample{demand: w.demand[0], refusals: n[tally.Refused] + n[tally.ShadowRefused]}
	s.requests = s.refusals + n[tally.Passed] + n[tally.ShadowPassed]
	for i := range s.demand {
		s.demand[i].windows += w.demand[1][i].windows
		s.demand[i].units += w.demand[1][i].units
	}
	for i := range w.entries {
		e := &w.entries[i]
		units, weight := e.total[0]+e.total[1]+e.units, w.weight(e)
		if units == 0 {
			continue
		}
		s.keys++
		s.distinct += weight
		s.variance += weight * (weight - 1) * float64(units) * float64(units) // Horvitz and Thompson 1952
		s.peaks[demandBucket(max(e.peak[0], e.peak[1], e.units))] += weight
		if e.units > 0 {
			s.demand.add(e.units, weight)
		}
		if e.hash < belowOf(w.level) {
			s.hashes = append(s.hashes, keyUnits{e.hash >> 32, units})
		}
	}
	slices.SortFunc(s.hashes, func(a, b keyUnits) int { return cmp.Compare(a.hash, b.hash) })
	s.hashes = s.hashes[:min(len(s.hashes), mostHashes)]
	return s
}

// limitsOfWhatIf are the limits of WhatIf, as parts of the present one.
var limitsOfWhatIf = [...]float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5,
	7, 10, 15, 20, 30, 50, 100}

// bars are the bounds of a Histogram.
var bars = [...]float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100}

// report evaluates the samples of nodes as one. The requests of a key may be spread over nodes. How far they are is
// known of the keys that the nodes have in common, and the demand of all others is multiplied by it: so a node that
// sees a third of a key's requests computes with all of them.
func (l window) report(nodes []*KeySample) *KeyReport {
	var all KeySample
	for _, s := range nodes {
		all.add(s)
	}
	spread, copies := spreadOf(nodes)
	report := &KeyReport{Distinct: uint64(all.distinct/copies + 0.5), Sampled: int(float64(all.keys)/copies + 0.5)}
	if l.seconds == 0 {
		return report
	}
	units := 0.0
	for i := range all.demand {
		units += all.demand[i].units
	}
	if units > 0 {
		// Nodes have the same keys in their samples, so that their errors do not cancel out.
		report.Error = min(1, 2*math.Sqrt(all.variance*copies)/units+leastError*spread+
			all.bias(all.refused(l.grant/spread)/units))
	}
	for _, part := range limitsOfWhatIf {
		limit := int64(math.Round(float64(l.base) * part))
		if n := len(report.WhatIf); limit < 1 || n > 0 && report.WhatIf[n-1].Limit == limit {
			continue
		}
		grant := l.grant * float64(limit) / float64(l.base)
		if grant < spread {
			continue // a node sees less than one unit of it
		}
		point := WhatIf{Limit: limit, Keys: uint64(all.keysAbove(grant/spread, spread) + 0.5),
			Requests: all.refused(grant / spread)}
		if units > 0 {
			point.Share = point.Requests / units
		}
		report.WhatIf = append(report.WhatIf, point)
	}
	report.Histogram = all.histogram(l.grant/spread, spread)
	return report
}

// leastError is that of the buckets, and of windows that end up to a tick late.
const leastError = 0.01

// bias is the difference between the share of refusals that is computed for the limit in force and the true one. The
// windows of the computation end at other times than those of the limit, so a burst can be in two of them. Nothing
// better is known of the other limits.
func (s *KeySample) bias(computed float64) float64 {
	if s.requests == 0 {
		return 0
	}
	return math.Abs(computed - float64(s.refusals)/float64(s.requests))
}

func (s *KeySample) add(o *KeySample) {
	s.keys += o.keys
	s.distinct += o.distinct
	s.variance += o.variance
	s.requests += o.requests
	s.refusals += o.refusals
	for i := range s.demand {
		s.demand[i].windows += o.demand[i].windows
		s.demand[i].units += o.demand[i].units
		s.peaks[i] += o.peaks[i]
	}
}

// refused are the units that a limit of grant units in a window refuses.
func (s *KeySample) refused(grant float64) (units float64) {
	for i := range s.demand {
		b := &s.demand[i]
		units += max(0, b.units-b.windows*grant)
	}
	return units
}

// keysAbove are the keys with more than grant units in a window.
func (s *KeySample) keysAbove(grant, spread float64) (keys float64) {
	for i, n := range s.peaks {
		if units := middleOf(i); units > grant {
			keys += n / nodesOf(units, spread)
		}
	}
	return keys
}

// nodesOf is the number of nodes that see a key of which one sees so many units.
func nodesOf(units, spread float64) float64 {
	if spread <= 1 {
		return 1
	}
	return spread * (1 - math.Pow(1-1/spread, max(1, units)*spread))
}

// middleOf is the middle of a bucket of demands.
func middleOf(bucket int) float64 {
	if bucket < 16 {
		return float64(bucket)
	}
	power, sub := bucket/8+2, bucket%8
	width := math.Exp2(float64(power - 3))
	return width*float64(8+sub) + (width-1)/2
}

func (s *KeySample) histogram(grant, spread float64) []Bar {
	keys := [len(bars)]float64{}
	for i, n := range s.peaks {
		units := middleOf(i)
		bar, found := slices.BinarySearch(bars[:], units/grant)
		if !found {
			bar--
		}
		keys[bar] += n / nodesOf(units, spread)
	}
	list := make([]Bar, len(bars))
	for i := range bars {
		list[i] = Bar{From: bars[i], Keys: uint64(keys[i] + 0.5)}
		if i+1 < len(bars) {
			list[i].To = bars[i+1]
		}
	}
	return list
}

// spreadOf returns on how many nodes the units of a key are, as if evenly, and the number of nodes of a key, which is
// less for keys with few units. It compares the keys that all nodes would have listed. Two units of a key are on one
// node with the probability 1/spread.
func spreadOf(nodes []*KeySample) (spread, copies float64) {
	below := uint64(math.MaxUint64)
	for _, s := range nodes {
		if len(s.hashes) == mostHashes {
			below = min(below, s.hashes[mostHashes-1].hash)
		}
	}
	type sum struct{ units, pairs, nodes float64 }
	keys := make(map[uint64]*sum)
	for _, s := range nodes {
		for _, k := range s.hashes {
			if k.hash > below {
				break
			}
			if keys[k.hash] == nil {
				keys[k.hash] = new(sum)
			}
			one := keys[k.hash]
			one.units += float64(k.units)
			one.pairs += float64(k.units) * float64(k.units-1)
			one.nodes++
		}
	}
	var units, together, seen float64
	for _, k := range keys {
		seen += k.nodes
		if k.units > 1 {
			units += k.units
			together += k.pairs / (k.units - 1)
		}
	}
	if units == 0 { // nothing is known
		return 1, max(1, seen/float64(max(1, len(keys))))
	}
	return max(1, min(units/together, float64(len(nodes)))), seen / float64(len(keys))
}

// Append appends the sample in a form for ParseSample, of less than 4 KB.
func (s *KeySample) Append(b []byte) []byte {
	b = append(b, sampleVersion)
	b = binary.AppendUvarint(b, uint64(s.keys))
	b = binary.AppendUvarint(b, rounded(s.distinct))
	b = binary.AppendUvarint(b, rounded(s.variance))
	b = binary.AppendUvarint(b, s.requests)
	b = binary.AppendUvarint(b, s.refusals)
	for i := range s.demand {
		d := &s.demand[i]
		if windows := rounded(d.windows); windows > 0 {
			b = append(b, byte(i))
			b = binary.AppendUvarint(b, windows)
			b = binary.AppendUvarint(b, rounded(d.units))
			b = binary.AppendUvarint(b, rounded(s.peaks[i]))
		}
	}
	b = append(b, demandBuckets)
	for _, k := range s.hashes {
		b = binary.AppendUvarint(binary.BigEndian.AppendUint32(b, uint32(k.hash)), k.units)
	}
	return b
}

const sampleVersion = 1

func rounded(x float64) uint64 { return uint64(min(x+0.5, math.MaxInt64)) }

// ParseSample reads what Append wrote.
func ParseSample(b []byte) (*KeySample, error) {
	in := input{rest: b}
	if in.byte() != sampleVersion {
		return nil, errors.New("sample of keys: not of version 1; allowed: what a server of this version wrote")
	}
	s := &KeySample{keys: int(in.uvarint() & math.MaxInt32), distinct: float64(in.uvarint()),
		variance: float64(in.uvarint()), requests: in.uvarint(), refusals: in.uvarint()}
	for next := 0; ; next++ {
		i := int(in.byte())
		if i == demandBuckets {
			break
		}
		if i < next || i > demandBuckets {
			return nil, errBadSample
		}
		s.demand[i].windows, s.demand[i].units = float64(in.uvarint()), float64(in.uvarint())
		s.peaks[i] = float64(in.uvarint())
		next = i
	}
	for len(in.rest) > 0 && len(s.hashes) < mostHashes {
		s.hashes = append(s.hashes, keyUnits{uint64(in.uint32()), max(1, in.uvarint())})
	}
	if in.short || len(in.rest) > 0 {
		return nil, errBadSample
	}
	return s, nil
}

var errBadSample = errors.New("sample of keys: it is truncated or damaged; allowed: what a server wrote")

// An input reads numbers. A missing one is 0, and sets short.
type input struct {
	rest  []byte
	short bool
}

func (in *input) byte() byte {
	if len(in.rest) == 0 {
		in.short = true
		return demandBuckets // ends a list
	}
	b := in.rest[0]
	in.rest = in.rest[1:]
	return b
}

func (in *input) uvarint() uint64 {
	n, size := binary.Uvarint(in.rest)
	if size <= 0 {
		in.rest, in.short = nil, true
		return 0
	}
	in.rest = in.rest[size:]
	return n
}

func (in *input) uint32() uint32 {
	if len(in.rest) < 4 {
		in.rest, in.short = nil, true
		return 0
	}
	n := binary.BigEndian.Uint32(in.rest)
	in.rest = in.rest[4:]
	return n
}
