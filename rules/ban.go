package rules

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
)

// Bans is a checked Ban: the limits that hold its state, which have the rule's name and a suffix. Their state is
// shared, kept and deleted as the state of any limit. Package gate describes their use.
type Bans struct {
	// Hold is RULE.ban. A key is banned while this limit refuses a cost of 0. It is a bucket that regains a
	// unit each microsecond, so its debt is a time: a ban keeps its length when the rule is changed.
	Hold *weir.Limit
	// Refusals is RULE.refusals; a key is banned when it is exhausted. With Counted it counts no refusals.
	Refusals *weir.Limit
	// Turn is RULE.turn: it grants one request alone the right to ban, at most once in the time of a ban.
	Turn *weir.Limit
	// Past is RULE.bans: a bucket with a unit for each of Lengths. Each ban takes one, and one returns in each
	// forget time.
	Past *weir.Limit
	// Lengths are the lengths of the first ban, the second and so on; the last repeats.
	Lengths []time.Duration
	// Counted: Refusals counts the requests that count by the rule's count_if.
	Counted bool
}

// Bans returns the rule's ban; nil if it has no ban.
func (r *Rule) Bans() *Bans { return r.bans }

const (
	shortestBan  = time.Second
	maxBan       = 3650 * 24 * time.Hour // seven of them forgotten one after the other still fit a bucket
	forgottenBan = 7 * 24 * time.Hour

	// maxTurn bounds how long a process that stopped while it banned keeps other processes from banning.
	maxTurn = 10 * time.Second
)

var refusalsWithin = regexp.MustCompile(`^([1-9][0-9]*) (refusals?|counted) within (\S+)$`)

func (b *builder) bans(i int, s *Spec, named bool) *Bans {
	given := &s.Ban
	if given.After == "" && given.For == "" && len(given.Then) == 0 && given.Forget == "" {
		return nil
	}
	before := len(b.problems)
	refusals, within := b.after(at(i, "ban.after"), given.After, s.CountIf.stated())
	bans := &Bans{Lengths: b.lengths(i, given), Counted: s.CountIf.stated()}
	forget := b.forget(i, given, bans.Lengths)
	if !named || len(b.problems) > before || b.omitted > 0 || refusals == 0 || len(bans.Lengths) == 0 {
		return nil
	}
	limit := func(word string, spec weir.Spec) *weir.Limit { return b.banLimit(i, s.Name+"."+word, spec) }
	bans.Hold = limit("ban", weir.TokenBucket{Capacity: 1, Refill: 1, Period: time.Microsecond})
	bans.Refusals = limit("refusals", weir.SlidingLog{Limit: refusals, Window: within})
	bans.Turn = limit("turn", weir.FixedWindow{Limit: 1, Window: min(bans.Lengths[0], maxTurn)})
	bans.Past = limit("bans", weir.TokenBucket{Capacity: int64(len(bans.Lengths)), Refill: 1, Period: forget})
	return bans
}

func (b *builder) banLimit(i int, name string, spec weir.Spec) *weir.Limit {
	limit, err := weir.NewLimit(name, spec)
	if err != nil {
		b.add(at(i, "ban"), "the ban needs a limit %q, and %s", name, sentence(err))
		return nil
	}
	b.owns(at(i, "ban"), name)
	return limit
}

// after reads the number of refusals, or of requests that count_if counts, and their time. Refusals of a rule with
// count_if are no sign of abuse: requests under way, which may all succeed, refuse others.
func (b *builder) after(p place, text string, counted bool) (n int64, within time.Duration) {
	if text == "" {
		if !b.has(p) {
			b.add(p, "ban.after is missing, such as after: 5 refusals within 1m")
		}
		return 0, 0
	}
	words := refusalsWithin.FindStringSubmatch(text)
	if words == nil {
		b.add(p, "ban.after is %.80q; allowed: a number of refusals within a time, such as 5 refusals within 1m, or "+
			"with count_if 5 counted within 10m", text)
		return 0, 0
	}
	switch {
	case counted && words[2] != "counted":
		b.add(p, "ban.after is %.80q; a rule with count_if bans by the requests that it counts: write %s counted "+
			"within %s", text, words[1], words[3])
	case !counted && words[2] == "counted":
		b.add(p, "ban.after is %.80q; without count_if a rule bans by its refusals: write %s refusals within %s", text,
			words[1], words[3])
	}
	n, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil || n > bounds.Refusals {
		b.add(p, "ban.after is %.80q; at most %d: the store remembers the time of each", text, bounds.Refusals)
	}
	return n, b.length(p, words[3])
}

// lengths reads the lengths of the bans, in order.
func (b *builder) lengths(i int, given *Ban) (list []time.Duration) {
	p := at(i, "ban.for")
	if given.For != "" {
		list = append(list, b.length(p, given.For))
	} else if !b.has(p) {
		b.add(p, "ban.for is missing, such as for: 10m")
	}
	b.count(at(i, "ban.then"), len(given.Then), bounds.Bans-1)
	for j, text := range given.Then {
		item := place{i, "ban.then", j}
		if text != "" || !b.has(item) {
			list = append(list, b.length(item, text))
		}
	}
	return list
}

// forget reads the time after which a ban no longer counts. It is longer than any ban: otherwise no ban could
// be the second.
func (b *builder) forget(i int, given *Ban, lengths []time.Duration) time.Duration {
	p, forget := at(i, "ban.forget"), forgottenBan
	if given.Forget != "" {
		forget = b.length(p, given.Forget)
	}
	if len(given.Then) == 0 {
		if given.Forget != "" {
			b.add(p, "ban.forget is about the bans of ban.then, which is missing")
		}
		return forget
	}
	for _, length := range lengths {
		if forget > 0 && forget <= length {
			b.add(p, "bans are forgotten after %v, before one of %v is over; give ban.forget a longer time", forget,
				length)
			break
		}
	}
	return forget
}

// length reads a time by the rules of limits.
func (b *builder) length(p place, text string) time.Duration {
	return b.lengthUpTo(p, text, maxBan, "3650d with its unit, such as 90s, 10m, 1h or 7d")
}

func (b *builder) lengthUpTo(p place, text string, most time.Duration, allowed string) time.Duration {
	// A text with blanks could be options of a limit.
	if spec, err := weir.ParseLimit("sliding_log 1/" + text); err == nil && !strings.ContainsAny(text, " \t\n/") &&
		!hasLeadingZero(text) {
		if log, ok := spec.(weir.SlidingLog); ok && log.Window >= shortestBan && log.Window <= most {
			return log.Window
		}
	}
	b.add(p, "%s has %.80q; allowed: a time from 1s to %s", p.field, text, allowed)
	return 0
}

// ban warns of bans that never hold, and of lengths that decrease.
func (l *linter) ban(i int, rule *Rule) {
	if rule.bans == nil {
		return
	}
	if rule.mode == Shadow {
		l.add(at(i, "ban"), "the rule never bans: it is in shadow")
	}
	if len(rule.components) == 0 {
		l.add(at(i, "ban"), "the rule has no key: all requests are banned together")
	}
	for j, length := range rule.bans.Lengths[1:] {
		if before := rule.bans.Lengths[j]; length < before {
			l.add(place{i, "ban.then", j}, "the ban of %v is shorter than the one before it, of %v", length, before)
		}
	}
}
