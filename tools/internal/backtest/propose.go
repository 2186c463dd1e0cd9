package backtest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir"
)

// For a rule three limits are replayed side by side: the one that it has, one above what most keys do, and one above
// what any does. One of them is proposed only where good clients are known: the smallest that refuses hardly any of
// them. Peaks do not show who the clients are, so without good clients no limit is proposed.

const (
	// minKeys is the smallest number of keys for a proposal.
	minKeys = 30
	// wide is the smallest ratio of a gap between peaks, and far the ratio at which good clients are doubted.
	wide = 2.0
	far  = 4.0
	// margin is added to the peaks of keys.
	margin         = 1.2
	proposedPoints = 3
	maxProposals   = maxPoints / proposedPoints
)

// SetPropose sets the rules to compare limits of; all is all of them. name is of the flag, for errors.
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

// A draft is a proposal with limits that are to be replayed.
type draft struct {
	Proposal
	of    SweepOf // without limits: none are replayed
	known bool    // enough good clients
}

// propose compares limits, by what this replay found and another one.
func (r *replay) propose(ctx context.Context, passes int) (list []Proposal, err error) {
	var drafts []*draft
	var sweeps []SweepOf
	for _, name := range r.config.Propose {
		d, err := r.draft(name)
		if err != nil {
			return nil, err
		}
		if drafts = append(drafts, d); d.of.Limits != nil {
			sweeps = append(sweeps, d.of)
		}
	}
	var done []*sweep
	var second *replay
	if len(sweeps) > 0 {
		config := *r.config
		config.Against = nil
		if second, err = newReplay(&config, sweeps); err != nil {
			return nil, err
		}
		if err := second.run(ctx, passes, passes); err != nil {
			return nil, err
		}
		done = second.sweeps
	}
	for _, d := range drafts {
		if d.of.Limits != nil {
			d.Points = done[0].result(second.stats, r.config.Good != nil).Points
			d.choose(r.config.FalsePositives)
			done = done[1:]
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
	d := &draft{Proposal: Proposal{Rule: name, Old: limitText(rule)}, of: s}
	keys := r.stats.rules[s.index].keys
	all := keys.peaks(false)
	switch {
	case len(rule.Components()) == 0:
		d.say("one_key")
	case len(all) < minKeys:
		d.say("few_keys", "count", fmt.Sprint(len(all)), "least", fmt.Sprint(minKeys))
	default:
		usual, most := d.look(all, keys, r.config)
		d.limits(windowed(rule).Spec(), usual, most)
	}
	return d, nil
}

func (d *draft) say(code string, pairs ...string) { d.Why = append(d.Why, note(code, pairs...)) }

// look explains the distribution of peaks. It returns what most keys have at most, and what all have: of good keys if
// enough are known.
func (d *draft) look(all []int64, keys *keys, c *Config) (usual, most int64) {
	window := shortDuration(time.Duration(keys.window) * time.Microsecond)
	weight := keys.table.weight()
	count := func(n int) string { return grouped(int64(n) * weight) }
	d.describe(all, window, count)
	good := keys.peaks(true)
	switch {
	case c.Good == nil:
		d.say("nobody_good")
	case len(good) < minKeys:
		d.say("few_good", "count", count(len(good)), "least", fmt.Sprint(minKeys))
	default:
		return d.lookAtGood(good, keys, c, window, count)
	}
	usual = percentile(all, 0.99)
	if d.GapTo > 0 {
		usual = d.GapFrom
	}
	return usual, all[len(all)-1]
}

// describe says how peaks are distributed, whoever the keys are of.
func (d *draft) describe(all []int64, window string, count func(int) string) {
	d.say("peaks", "count", count(len(all)), "median", grouped(percentile(all, 0.5)), "window", window, "most",
		grouped(all[len(all)-1]))
	if len(all) >= 1000 { // the percentile of fewer is the largest peak
		d.say("peaks_999", "p999", grouped(percentile(all, 0.999)))
	}
	if d.GapFrom, d.GapTo = gap(all); d.GapTo == 0 {
		d.say("no_gap", "factor", fmt.Sprint(wide))
		return
	}
	below, _ := slices.BinarySearch(all, d.GapTo)
	d.say("gap", "from", grouped(d.GapFrom), "to", grouped(d.GapTo), "above", count(len(all)-below), "count",
		count(len(all)))
}

// lookAtGood explains what good clients do. If few of them are far above the others, they may not be good.
func (d *draft) lookAtGood(good []int64, keys *keys, c *Config, window string, count func(int) string) (usual,
	most int64) {
	most = good[len(good)-1]
	from, to := gap(good)
	if below, _ := slices.BinarySearch(good, to); float64(to) >= far*float64(from) && 2*below > len(good) {
		d.say("good_far_above", "count", count(len(good)-below), "of", count(len(good)), "from", grouped(from), "to",
			grouped(to), "ratio", strconv.FormatFloat(float64(to)/float64(from), 'f', 0, 64), "names",
			strings.Join(keys.goodFrom(to, maxExamples), ", "))
		return from, most
	}
	d.known = true
	share := 1 - c.FalsePositives
	usual = percentile(good, share)
	if usual == most {
		d.say("good_most", "count", count(len(good)), "most", grouped(usual), "window", window)
	} else {
		d.say("good_share", "share", percent(int64(share*1e6), 1e6), "count", count(len(good)), "most", grouped(usual),
			"window", window)
	}
	return usual, most
}

// gap is the widest gap between two peaks that follow each other; 0, 0: no gap is wide.
func gap(peaks []int64) (from, to int64) {
	widest := wide
	for i := 1; i < len(peaks); i++ {
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

// limits chooses the limits to replay: the limit of the rule, one above usual, one above most, and, where these are
// equal, the half or the double of the largest.
func (d *draft) limits(spec weir.Spec, usual, most int64) {
	now := unitsOf(spec)
	units := []int64{now}
	add := func(n int64) {
		if len(units) < proposedPoints && n > 0 && !slices.Contains(units, n) {
			units = append(units, n)
		}
	}
	want := margin * float64(usual)
	if d.GapTo > 0 && usual == d.GapFrom && want >= float64(d.GapTo) {
		want = math.Sqrt(float64(d.GapFrom) * float64(d.GapTo))
	}
	add(human(want, math.Ceil))
	add(human(margin*float64(most), math.Ceil))
	add(now / 2)
	for n := now; len(units) < proposedPoints; {
		n *= 2
		add(n)
	}
	slices.Sort(units)
	for _, n := range units {
		d.of.Limits = append(d.of.Limits, withUnits(spec, n))
	}
}

// choose takes the smallest limit that refuses few enough of the good clients.
func (d *draft) choose(falsePositives float64) {
	if !d.known {
		return
	}
	for _, p := range d.Points {
		if float64(p.Good.ClientsRefused) <= falsePositives*float64(p.Good.Clients) {
			d.Limit = p.Limit
			d.say("proposed", "limit", p.Limit)
			return
		}
	}
	d.say("all_hit_good")
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
