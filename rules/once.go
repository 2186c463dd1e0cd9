package rules

import (
	"cmp"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
)

// IDs is a checked Once.
type IDs struct {
	Keep    time.Duration // how long an id is kept
	Repeats *weir.Limit   // counts the repetitions of an id at no charge; nil: repetitions are refused

	by component
}

// IDs is how requests of the rule are repeated; nil if each request counts.
func (r *Rule) IDs() *IDs { return r.ids }

// Of is the id of a request; "" if the request has no id.
func (o *IDs) Of(r *Request) string {
	if !o.by.trim && !o.by.nfkc && !o.by.lower && !o.by.source.made() {
		return o.by.value(r)
	}
	return string(o.by.appendValue(nil, r))
}

const (
	maxOnce        = 24 * time.Hour
	defaultRepeats = 3
	refuseWord     = "refuse"
)

var repeatWords = []string{"pass", refuseWord}

// once checks once. Its limits are checked by limits.
func (b *builder) once(i int, s *Spec) *IDs {
	given := s.Once
	if given == (Once{}) {
		return nil
	}
	before := len(b.problems)
	ids := &IDs{by: b.idOf(at(i, "once.by"), given.By, s.Match.Path)}
	if p := at(i, "once.for"); given.For != "" {
		ids.Keep = b.lengthUpTo(p, given.For, maxOnce, "24h with its unit, such as 10m")
	} else if !b.has(p) {
		b.add(p, "once.for is missing, such as for: 10m")
	}
	if given.Repeats < 0 || given.Repeats > bounds.Repeats {
		b.add(at(i, "once.repeats"), "once.repeats is %d; allowed: 1 to %d", given.Repeats, bounds.Repeats)
	}
	refuse := word(b, at(i, "once.repeat"), given.Repeat, repeatWords) == refuseWord
	if refuse && given.Repeats != 0 {
		b.add(at(i, "once.repeats"), "once.repeats has no effect with repeat: refuse; leave one out")
	}
	if refuse || len(b.problems) > before || b.omitted > 0 {
		return ids
	}
	window := weir.FixedWindow{Limit: int64(cmp.Or(given.Repeats, defaultRepeats)), Window: ids.Keep}
	ids.Repeats, _ = weir.NewLimit("weir.repeats", window) // within its bounds
	return ids
}

// idOf reads the component of an id. Requests have ids by name; other values are of clients.
func (b *builder) idOf(p place, text, path string) component {
	if text == "" {
		if !b.has(p) {
			b.add(p, "once.by is missing, such as by: header.Idempotency-Key")
		}
		return component{}
	}
	c, complaint := parseComponent(text, path)
	if complaint == "" && (sources[c.source].name == alone || c.source == sourceConstant) {
		complaint = "allowed: header.NAME, query.NAME, cookie.NAME, body.NAME, path.NAME, descriptor.NAME"
	}
	if complaint != "" {
		b.add(p, "once.by is %.80q; %s", text, complaint)
	}
	return c
}
