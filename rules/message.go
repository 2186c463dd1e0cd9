package rules

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/timewords"
)

// A Translation is a message in one language.
type Translation struct {
	Language string // a tag of BCP 47, such as "zh" or "pt-BR"; "" is unknown
	Text     string // with placeholders, such as {retry_after}
}

// MessageValues are the values of the placeholders in a message, besides the values of its rule.
type MessageValues struct {
	Limit      *weir.Limit   // that refuses
	RetryAfter time.Duration // positive, and not weir.Never
	Service    string
	Route      string
}

// messageWords are the words that a message may have in braces.
var messageWords = []string{"limit", "unit", "window", "retry_after", "rule", "level", "service", "route"}

// A message is a checked text in several languages. The first is the default.
type message struct {
	texts   []messageText
	matcher language.Matcher // of the texts that have a language; nil: there is nothing to choose from
	matched []int            // which texts those are
}

type messageText struct {
	language string
	parts    []messagePart
}

// A messagePart is literal text, and the placeholder after it; "" if no placeholder follows.
type messagePart struct{ literal, word string }

// Message is the text of the rule's refusals in the language that Accept-Language prefers, or else the first.
// language is "" if it is unknown. ok is false if neither the rule nor its file has a message.
func (r *Rule) Message(v *MessageValues, accept []string) (text, language string, ok bool) {
	if r.message == nil {
		return "", "", false
	}
	chosen := &r.message.texts[r.message.choose(accept)]
	var b strings.Builder
	for _, part := range chosen.parts {
		b.WriteString(part.literal)
		if part.word != "" {
			b.WriteString(r.messageValue(part.word, v, timewords.Of(chosen.language)))
		}
	}
	return b.String(), chosen.language, true
}

// choose is the index of the text for the lines of Accept-Language.
func (m *message) choose(accept []string) int {
	if m.matcher == nil || len(accept) == 0 {
		return 0
	}
	line := strings.Join(accept, ",")
	if len(line) > bounds.Text {
		return 0
	}
	wanted, _, err := language.ParseAcceptLanguage(line)
	if err != nil {
		return 0
	}
	if _, i, confidence := m.matcher.Match(wanted...); confidence > language.No {
		return m.matched[i]
	}
	return 0
}

func (r *Rule) messageValue(word string, v *MessageValues, w *timewords.Words) string {
	switch word {
	case "limit":
		return r.unit.Number(unitsIn(v.Limit))
	case "unit":
		return r.unit.Name
	case "window":
		return w.Window(v.Limit)
	case "retry_after":
		return w.Wait(v.RetryAfter)
	case "rule":
		return r.DisplayName()
	case "level":
		return w.Level(r.level)
	case "service":
		return v.Service
	default:
		return v.Route
	}
}

// DisplayName is the rule's label, or else its name.
func (r *Rule) DisplayName() string {
	if r.label != "" {
		return r.label
	}
	return r.name
}

// unitsIn is the number of units that a limit grants in its window.
func unitsIn(limit *weir.Limit) int64 {
	if refill := limit.Refill(); refill > 0 {
		return refill
	}
	return limit.Capacity()
}

// message checks a message, of a rule or with −1 of the file.
func (b *builder) message(i int, given []Translation) *message {
	if len(given) == 0 {
		return nil
	}
	p := at(i, "message")
	if !b.count(p, len(given), bounds.Languages) {
		return nil
	}
	m := new(message)
	var tags []language.Tag
	for j, t := range given {
		place := p
		if t.Language != "" {
			place.field += "." + t.Language
			tag, err := language.Parse(t.Language)
			if err != nil {
				b.add(place, "message has the language %.80q; allowed: a tag such as en, zh or pt-BR", t.Language)
			}
			tags, m.matched = append(tags, tag), append(m.matched, j)
		}
		for _, other := range given[:j] {
			if strings.EqualFold(other.Language, t.Language) {
				b.add(place, "message has the language %.80q twice", t.Language)
			}
		}
		m.texts = append(m.texts, messageText{t.Language, b.messageParts(place, t.Text)})
	}
	if len(given) > 1 {
		m.matcher = language.NewMatcher(tags)
	}
	return m
}

// messageParts checks a text, and splits it at its placeholders.
func (b *builder) messageParts(p place, text string) (parts []messagePart) {
	if text == "" && b.has(p) {
		return nil
	}
	if n := utf8.RuneCountInString(text); n == 0 || n > bounds.Message || !utf8.ValidString(text) ||
		strings.ContainsFunc(text, unicode.IsControl) {
		b.add(p, "message is %.80q; allowed: 1 to %d characters in one line, without control characters", text,
			bounds.Message)
		return nil
	}
	literal := ""
	for {
		before, rest, found := strings.Cut(text, "{")
		literal += before
		if !found {
			return append(parts, messagePart{literal: literal})
		}
		if text, found = strings.CutPrefix(rest, "{"); found { // {{ is a brace
			literal += "{"
			continue
		}
		word, after, closed := strings.Cut(rest, "}")
		if !closed {
			b.add(p, "message has a { without }: %.40q; write {{ for a brace", "{"+rest)
			return nil
		}
		if !slices.Contains(messageWords, word) {
			b.add(p, "message has the unknown placeholder {%.40s}; %s; write {{ for a brace", word,
				oneOf(word, messageWords))
		}
		parts, literal, text = append(parts, messagePart{literal, word}), "", after
	}
}

// windowed refuses {window} in the message of a rule with a limit without a window.
func (b *builder) windowed(i int, rule *Rule) {
	if rule.message == nil || !rule.message.has("window") {
		return
	}
	for _, limit := range rule.limits {
		if limit.Leases() {
			b.add(at(i, "message"), "message has the placeholder {window}, but the limit %s has no window; write a "+
				"message without it", limit)
		}
	}
}

func (m *message) has(word string) bool {
	return slices.ContainsFunc(m.texts, func(t messageText) bool {
		return slices.ContainsFunc(t.parts, func(part messagePart) bool { return part.word == word })
	})
}

// The levels of the rules, from the narrowest. The level of a rule is the first with a component in the rule's key or a
// condition in its match.
const (
	levelIP        = "IP"
	levelUser      = "USER"
	levelInterface = "INTERFACE"
	levelService   = "SERVICE"
	levelKey       = "KEY"
	levelGlobal    = "GLOBAL"
)

func levelOf(components []component, m *Match) string {
	keyed := func(kinds ...source) bool {
		return slices.ContainsFunc(components, func(c component) bool { return slices.Contains(kinds, c.source) })
	}
	switch {
	case keyed(sourceIP) || len(m.Client) > 0:
		return levelIP
	case keyed(sourceUser) || len(m.User) > 0:
		return levelUser
	case keyed(sourcePath, sourceEndpoint, sourceRoute) || m.Path != "" || len(m.Route) > 0:
		return levelInterface
	case keyed(sourceService) || len(m.Service) > 0:
		return levelService
	case len(components) > 0:
		return levelKey
	}
	return levelGlobal
}
