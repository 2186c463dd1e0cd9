package weir

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ParseLimit reads a limit in one of these forms. Every Spec's String writes one of them.
//
//	100/1m                         token bucket of 100, refilled at 100 a minute
//	10/s burst 20                  10 a second, bursts of 20
//	10r/s                          nginx's spelling; the burst is 10 here, not nginx's 0
//	0.5/s                          1/2s: the same rate in whole units, here with a burst of 1
//	5/1m overdraft 3 step          borrowing, refilled by whole periods
//	leaky_queue 10/s queue 50      evenly spaced, 50 may wait
//	fixed_window 100/1h epoch      (or: first, the default)
//	calendar 10000/day in Asia/Shanghai
//	sliding_log 5/1m
//	sliding_counter 100/1m slices 60      (default: slices 10)
//	concurrency 20 ttl 30s
//
// A period is a Go duration ("1m30s") or a number with d or w; a unit alone means one
// of it. The first word may name the algorithm; without it the limit is a token bucket.
func ParseLimit(text string) (Spec, error) {
	p := &limitParser{text: text, words: words(text)}
	spec := p.parse()
	if p.err != nil {
		return nil, p.err
	}
	if err := spec.compile(new(Limit)); err != nil {
		return nil, fmt.Errorf("limit %q: %w", text, err)
	}
	return spec, nil
}

// limitParser reads the words one by one; after the first error it returns only zeros.
type limitParser struct {
	text  string
	words []string
	err   error
}

func (p *limitParser) fail(allowed string) {
	if p.err == nil {
		p.err = invalid("limit", p.text, allowed)
	}
}

func (p *limitParser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	word := strings.ToLower(p.words[0])
	p.words = p.words[1:]
	return word
}

// take consumes a word if it comes next.
func (p *limitParser) take(word string) bool {
	if len(p.words) == 0 || strings.ToLower(p.words[0]) != word {
		return false
	}
	p.words = p.words[1:]
	return true
}

func (p *limitParser) parse() Spec {
	f := formOf(AlgorithmTokenBucket.String())
	if len(p.words) > 0 && (p.words[0][0] < '0' || p.words[0][0] > '9') && p.words[0][0] != '-' {
		f = formOf(p.next())
	}
	if f == nil {
		p.fail("COUNT/PERIOD such as 100/1m, or a first word of " + strings.Join(firstWords(), ", "))
		return nil
	}
	spec := f.parse(p)
	if len(p.words) > 0 {
		p.fail(fmt.Sprintf("%s; %q is not an option of %s, or is repeated", f.allowedOptions(p.words[0]), p.words[0],
			f.word))
	}
	return spec
}

// formOf is the form of limits with a first word; nil if no form has it.
func formOf(word string) *form {
	for i := range descriptors {
		for j := range descriptors[i].forms {
			if f := &descriptors[i].forms[j]; f.word == word {
				return f
			}
		}
	}
	return nil
}

// allowedOptions returns the allowed options, for the error about a word that is not one of them.
func (f *form) allowedOptions(word string) string {
	if f.options == "" {
		return "nothing after it"
	}
	if name, value, ok := strings.Cut(word, "="); ok && strings.Contains(f.options, name+" N") {
		return fmt.Sprintf("after it %s, such as %s %s", f.options, name, value)
	}
	return "after it " + f.options
}

// firstWords are the first words of all algorithms without members.
func firstWords() (words []string) {
	for i := range descriptors {
		if a := Algorithm(i); !a.Fair() {
			words = append(words, a.Words()...)
		}
	}
	return words
}

func (p *limitParser) leakyQueue() Spec {
	n, period := p.rate()
	return LeakyQueue(n, period, p.option("queue", 0))
}

func (p *limitParser) fixedWindow() Spec {
	n, period := p.rate()
	return FixedWindow{Limit: n, Window: period, Anchor: p.anchor()}
}

func (p *limitParser) slidingLog() Spec {
	n, period := p.rate()
	return SlidingLog{Limit: n, Window: period}
}

func (p *limitParser) slidingCounter() Spec {
	n, period := p.rate()
	return SlidingCounter{Limit: n, Window: period, Slices: p.option("slices", defaultSlices)}
}

func (p *limitParser) tokenBucket() Spec {
	n, period := p.rate()
	spec := TokenBucket{
		Capacity:  p.option("burst", n),
		Refill:    n,
		Period:    period,
		Overdraft: p.option("overdraft", 0),
	}
	if i := p.index("step"); i >= 0 {
		spec.Mode = Step
		p.words = slices.Delete(p.words, i, i+1)
	}
	return spec
}

func (p *limitParser) anchor() Anchor {
	if p.take("epoch") {
		return Epoch
	}
	p.take("first")
	return First
}

func (p *limitParser) calendar() Spec {
	count, unit := p.fraction("COUNT/UNIT such as 1000/day")
	spec := Calendar{Limit: p.number(count)}
	for i := range calendarUnits {
		if i > 0 && unit == calendarUnits[i].word {
			spec.Unit = CalendarUnit(i)
		}
	}
	if spec.Unit == 0 {
		p.fail("a calendar's unit: minute, hour, day, week, month or year")
	}
	if !p.take("in") {
		return spec
	}
	if len(p.words) == 0 {
		p.fail("a time zone after in, such as in Europe/Berlin")
		return spec
	}
	spec.Zone, p.words = p.words[0], p.words[1:] // the zone keeps its case
	return spec
}

func (p *limitParser) concurrency() Spec {
	n := p.number(p.next())
	if !p.take("ttl") {
		p.fail("concurrency COUNT ttl DURATION, such as concurrency 20 ttl 30s")
	}
	spec := Concurrency{Limit: n, TTL: p.period(p.next())}
	if p.take("retry_after") {
		spec.RetryAfter = p.period(p.next())
	}
	return spec
}

// option reads and removes word and the number after it, at any position; def if the word is absent.
func (p *limitParser) option(word string, def int64) int64 {
	i := p.index(word)
	if i < 0 {
		return def
	}
	after := limitParser{text: p.text, words: p.words[i+1:]}
	n := after.number(after.next())
	if after.err != nil {
		p.fail(fmt.Sprintf("a whole number after %s", word))
	}
	p.words = append(p.words[:i:i], after.words...)
	return n
}

// index is the position of a word among the unread ones, or −1.
func (p *limitParser) index(word string) int {
	return slices.IndexFunc(p.words, func(w string) bool { return strings.ToLower(w) == word })
}

func (p *limitParser) rate() (n int64, period time.Duration) {
	if len(p.words) > 0 {
		if _, word, _ := strings.Cut(p.words[0], "/"); strings.Contains(word, "M") {
			p.fail("m for a minute, and calendar COUNT/month for a month; a capital M could be either")
		}
	}
	count, word := p.fraction("COUNT/PERIOD such as 100/1m or 10/s")
	n, periods := p.decimal(count)
	if period = p.period(word); period > math.MaxInt64/time.Duration(periods) {
		p.fail("a shorter period, or fewer decimals")
		return 0, 0
	}
	return n, period * time.Duration(periods)
}

func (p *limitParser) fraction(allowed string) (count, word string) {
	left, right, ok := strings.Cut(p.next(), "/")
	if !ok {
		p.fail(allowed)
	}
	return strings.TrimSuffix(left, "r"), right
}

// maxDecimals is the maximum of decimals of a count.
const maxDecimals = 6

// decimal is a count of one period as a whole count of as few periods as possible: 2.5 is 5 in 2.
func (p *limitParser) decimal(count string) (n, periods int64) {
	whole, decimals, ok := strings.Cut(count, ".")
	if !ok {
		return p.number(count), 1
	}
	if whole == "" || decimals == "" || len(decimals) > maxDecimals || strings.Trim(decimals, "0123456789") != "" {
		p.fail(fmt.Sprintf("a count with 1 to %d decimals, such as 0.5; %q is not one", maxDecimals, count))
		return 0, 1
	}
	n, periods = p.number(whole+decimals), 1
	for range decimals {
		periods *= 10
	}
	common := gcd(max(n, 1), periods)
	return n / common, periods / common
}

func (p *limitParser) number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || word[0] == '+' {
		p.fail(fmt.Sprintf("whole numbers; %q is not one", word))
		return 0
	}
	return n
}

func (p *limitParser) period(word string) time.Duration {
	if d, ok := parseDuration(word); ok {
		return d
	}
	if word == "month" || word == "year" {
		p.fail(fmt.Sprintf("calendar COUNT/%s, as a %s has no fixed length; or a period such as 1h, 1d or 1w",
			word, word))
	}
	p.fail(fmt.Sprintf("a period with its unit, such as 1s, 500ms, 1m30s, 1h, 1d or 1w; %q is not one", word))
	return 0
}

var unitWords = map[string]time.Duration{
	"us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond,
	"s": time.Second, "sec": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hour": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

// parseDuration reads Go's durations, a whole number of days or weeks, or a unit alone.
func parseDuration(word string) (time.Duration, bool) {
	if unit, ok := unitWords[word]; ok {
		return unit, true
	}
	if n := len(word) - 1; n > 0 && (word[n] == 'd' || word[n] == 'w') {
		unit := unitWords[word[n:]]
		amount, err := strconv.ParseInt(word[:n], 10, 64)
		if err != nil || amount < 0 || amount > math.MaxInt64/int64(unit) {
			return 0, false
		}
		return time.Duration(amount) * unit, true
	}
	d, err := time.ParseDuration(word)
	return d, err == nil && d > 0
}
