package backtest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
)

// A proposal takes the peaks of keys: the largest number of units in a window of the rule's limit. Legitimate keys are
// those of good clients. Without any, keys above a wide gap in the distribution are taken for abuse, and the others for
// legitimate. The limit is the 99.9th percentile of legitimate keys (as --false-positives says) and a fifth more, as a
// number that people write. Several are replayed, and the smallest that refuses few enough is proposed; of a bucket
// also the smallest burst that refuses no more keys.

const (
	// leastKeys is the number of keys below which nothing is proposed.
	leastKeys = 30
	// wide is the ratio from which a gap between peaks is one.
	wide = 2.0
	// above is the largest share of keys that may lie above a gap.
	above = 0.05
	// margin is what is added to what legitimate keys do.
	margin = 1.2
	// proposedPoints is the number of limits that are replayed for each rule.
	proposedPoints = 8
	maxProposals   = maxPoints / proposedPoints
)

// SetPropose sets the rules for which limits are proposed; all is all of them. name is of the flag, for errors.
func (c *Config) SetPropose(name string, list []string) error {
	if slices.Contains(list, "all") {
		list = nil
		for i := range c.File.Rules {
			if rule := c.Set.Rules()[i]; windowed(rule) != nil && len(rule.Components()) > 0 {
				list = append(list, rule.Name())
			}
		}
	}
	for _, rule := range list {
		s, err := sweepOf(name, rule, c.File)
		if err != nil {
			return err
		}
		if windowed(c.Set.Rules()[s.index]) == nil {
			return fmt.Errorf("%s names the rule %s, which has no limit for a time; allowed: rules with one that are "+
				"enabled", name, rule)
		}
	}
	if len(list) > maxProposals {
		return fmt.Errorf("%s names %d rules; allowed: 1 to %d at a time", name, len(list), maxProposals)
	}
	c.Propose = list
	return nil
}

// A draft is a proposal whose limits are to be replayed.
type draft struct {
	Proposal
	of     SweepOf
	rates  int // of the first limits of the sweep, ascending; the others are bursts of the first, ascending
	reject string
}

// propose proposes limits, by what this replay found and another one.
func (r *replay) propose(ctx context.Context, passes int) (list []Proposal, err error) {
	var drafts []*draft
	var sweeps []SweepOf
	for _, name := range r.config.Propose {
		d, err := r.draft(name)
		if err != nil {
			return nil, err
		}
		if drafts = append(drafts, d); d.reject == "" {
			sweeps = append(sweeps, d.of)
		}
	}
	if len(sweeps) > 0 {
		config := *r.config
		config.CompareSpread, config.Against = 0, nil
		second, err := newReplay(&config, sweeps)
		if err != nil {
			return nil, err
		}
		if err := second.run(ctx, passes, passes); err != nil {
			return nil, err
		}
		done := second.sweeps
		for _, d := range drafts {
			if d.reject == "" {
				d.choose(done[0].result(second.stats, r.config.Good != nil).Points, r.config.FalsePositives)
				done = done[1:]
			}
		}
	}
	for _, d := range drafts {
		if d.reject != "" {
			d.Why = []string{d.reject}
		}
		list = append(list, d.Proposal)
	}
	return list, nil
}

// draft looks at the peaks of a rule's keys.
func (r *replay) draft(name string) (*draft, error) {
	s, err := sweepOf("propose", name, r.config.File)
	if err != nil {
		return nil, err
	}
	rule := r.config.Set.Rules()[s.index]
	limit := windowed(rule)
	d := &draft{Proposal: Proposal{Rule: name, Old: limitText(rule)}, of: s}
	keys := r.stats.rules[s.index].keys
	all := keys.peaks(false)
	switch {
	case len(rule.Components()) == 0:
		d.reject = "The rule has one key for all requests: its limit follows from what the service can do, not from " +
			"what clients do."
		return d, nil
	case len(all) < leastKeys:
		d.reject = fmt.Sprintf("Only %s occurred; %d are the least from which anything follows. Take a longer log.",
			plural(len(all), "key"), leastKeys)
		return d, nil
	}
	d.limits(limit, d.look(all, keys, r.config), keys)
	return d, nil
}

func (d *draft) say(format string, args ...any) { d.Why = append(d.Why, fmt.Sprintf(format, args...)) }

// look finds the gap and what legitimate keys have at most, and explains them.
func (d *draft) look(all []int64, keys *keys, c *Config) (usual int64) {
	weight := keys.table.weight()
	window := shortDuration(time.Duration(keys.window) * time.Microsecond)
	d.GapFrom, d.GapTo = gap(all)
	legitimate, who := all, "keys"
	if c.Good != nil {
		if good := keys.peaks(true); len(good) >= leastKeys {
			legitimate, who = good, "keys of good clients"
		} else {
			d.say("Only %s are good by --good, too few to go by.", plural(len(good), "key"))
		}
	}
	isGood := who != "keys"
	if d.GapTo > 0 && !isGood {
		below, _ := slices.BinarySearch(all, d.GapTo)
		legitimate, who = all[:below], "keys below the gap"
	}
	d.P999 = percentile(legitimate, 0.999)
	share := 0.999
	if isGood {
		share = 1 - c.FalsePositives
	}
	usual = percentile(legitimate, share)
	d.say("%.4g %% of %s %s have at most %s in any %s; half have at most %s. A fifth is added.", 100*share,
		grouped(int64(len(legitimate))*weight), who, plural(int(usual), "unit"), window,
		grouped(percentile(legitimate, 0.5)))
	if d.GapTo > 0 {
		over, _ := slices.BinarySearch(all, d.GapTo)
		d.say("The widest gap in the distribution of peaks is %s … %s: %s above it.",
			grouped(d.GapFrom), grouped(d.GapTo), areKeys(int64(len(all)-over)*weight))
	} else {
		d.say("No key stands out: no gap is wider than a factor of %g, and the largest peak is %s.", wide,
			grouped(all[len(all)-1]))
	}
	if !isGood {
		d.Why = append(d.Why, "Nobody is known to be legitimate: say who is with --good, and look at who would be "+
			"refused.")
	}
	return usual
}

func areKeys(n int64) string {
	if n == 1 {
		return "1 key is"
	}
	return grouped(n) + " keys are"
}

// gap is the widest gap between two peaks that follow each other, above which are few keys; 0, 0: none is wide.
func gap(peaks []int64) (from, to int64) {
	widest := wide
	for i := len(peaks) - 1; i > 0; i-- {
		if float64(len(peaks)-i) > max(1, above*float64(len(peaks))) {
			break
		}
		if ratio := float64(peaks[i]) / float64(max(1, peaks[i-1])); ratio >= widest && peaks[i-1] >= 2 {
			widest, from, to = ratio, peaks[i-1], peaks[i]
		}
	}
	return from, to
}

// percentile is the smallest peak that so many keys do not exceed.
func percentile(peaks []int64, share float64) int64 {
	i := int(math.Ceil(share*float64(len(peaks)))) - 1
	return peaks[min(max(i, 0), len(peaks)-1)]
}

// limits chooses what is replayed.
func (d *draft) limits(limit *weir.Limit, usual int64, keys *keys) {
	want := float64(usual) * margin
	if d.GapTo > 0 && usual <= d.GapFrom && want >= float64(d.GapTo) {
		want = math.Sqrt(float64(d.GapFrom) * float64(d.GapTo))
	}
	spec := limit.Spec()
	units := human(want, math.Ceil)
	for range 3 {
		d.of.Limits = append(d.of.Limits, withUnits(fullBurst(spec), units))
		units = human(float64(units)*1.01+1e-6, math.Ceil)
		if units == unitsOf(d.of.Limits[len(d.of.Limits)-1]) {
			units++
		}
	}
	d.rates = len(d.of.Limits)
	bucket, is := d.of.Limits[0].(weir.TokenBucket)
	if !is || bucket.Capacity <= 1 {
		return
	}
	cluster := int64(1)
	for i := range keys.table.items {
		if x := &keys.table.items[i].v; x.peak <= bucket.Refill {
			cluster = max(cluster, int64(x.cluster))
		}
	}
	least := human(margin*float64(cluster), math.Ceil)
	if least >= bucket.Capacity {
		return
	}
	for _, burst := range humanSteps(least, bucket.Capacity, proposedPoints-d.rates+1) {
		if burst < bucket.Capacity {
			other := bucket
			other.Capacity = burst
			d.of.Limits = append(d.of.Limits, other)
		}
	}
}

// fullBurst is a bucket whose burst is what is refilled in a period; other limits, and queues, stay.
func fullBurst(s weir.Spec) weir.Spec {
	if bucket, is := s.(weir.TokenBucket); is && bucket.Capacity > 1 {
		bucket.Capacity = bucket.Refill
		return bucket
	}
	return s
}

// choose takes the smallest limit that refuses few enough of the good clients, or, if none is known, the first.
func (d *draft) choose(points []Point, falsePositives float64) {
	chosen := points[0]
	for _, p := range points[:d.rates] {
		chosen = p
		if p.Good == nil || float64(p.Good.ClientsRefused) <= falsePositives*float64(p.Good.Clients) {
			break
		}
	}
	if chosen.Limit == points[0].Limit {
		chosen = d.burst(points)
	}
	d.Limit, d.Count, d.Good = chosen.Limit, chosen.Count, chosen.Good
	if p := chosen.Good; p != nil && float64(p.ClientsRefused) > falsePositives*float64(p.Clients) {
		d.say("It refuses %s of the good clients, more than --false-positives: %s would, too.",
			percent(p.ClientsRefused, p.Clients), points[d.rates-1].Limit)
	}
	if d.Limit == d.Old {
		d.Why = append(d.Why, "It is the limit that the rule has.")
	}
}

// burst is the first limit with a smaller burst, if there is one that refuses no more. It is one step above the
// smallest such burst, which would fit the log alone.
func (d *draft) burst(points []Point) Point {
	full := points[0]
	for i := d.rates; i+1 < len(points); i++ {
		if p := points[i]; p.Refused > full.Refused || p.ClientsRefused > full.ClientsRefused {
			continue
		}
		enough, chosen := d.of.Limits[i].(weir.TokenBucket), d.of.Limits[i+1].(weir.TokenBucket)
		d.say("A burst of %s refuses no more than one of %s; %s leaves room.",
			grouped(enough.Capacity), grouped(enough.Refill), grouped(chosen.Capacity))
		return points[i+1]
	}
	return full
}

// shortDuration is 1m instead of 1m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
