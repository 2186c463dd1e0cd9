package redissource

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/nearest"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// Maxima of hashes and messages.
const (
	MaxHash    = 64 << 10       // bytes that a hash takes in Redis' memory
	MaxMessage = 64 << 10       // bytes of a message
	MaxValue   = bounds.Text    // bytes of a field's value
	MaxRules   = rules.MaxRules // hashes
)

// The types of rules. Of each type at most one rule applies to a request: the best match.
const (
	global    = "GLOBAL"
	service   = "SERVICE"
	interfac  = "INTERFACE"
	ip        = "IP"
	user      = "USER"
	anyTarget = "*"
)

var limitTypes = []string{global, service, interfac, ip, user}

var strategies = []string{"TOKEN_BUCKET", "SLIDING_WINDOW", "FIXED_WINDOW", "LEAKY_BUCKET", "LEAKY_QUEUE", "GCRA",
	"SLIDING_LOG", "SLIDING_COUNTER", "CALENDAR", "CONCURRENCY"}

// onlyOf maps fields to the strategies that have them.
var onlyOf = map[string][]string{"burst": {"TOKEN_BUCKET", "GCRA", "LEAKY_BUCKET"}, "queue": {"LEAKY_QUEUE"},
	"slices": {"SLIDING_COUNTER"}, "zone": {"CALENDAR"}}

// The fields. notes are for people, and are not read. Other fields are ignored with a warning, so
// that extra notes do not disable a limit.
var (
	needed   = []string{"limitType", "limitTarget", "limitCount", "timeWindow", "strategy", "enabled"}
	optional = []string{"id", "ruleName", "description", "burst", "queue", "slices", "zone", "mode",
		"onStoreError", "version"}
	notes = []string{"remark", "createTime", "updateTime", "createdAt", "updatedAt", "createdBy", "updatedBy"}
)

// version is the only version of the layout.
const version = "1"

// label returns the label. A label that cannot be shown is ignored, because the limits matter more.
func (h *Hash) label() string {
	text := h.fields["ruleName"]
	if utf8.RuneCountInString(text) > bounds.Label || !utf8.ValidString(text) ||
		strings.ContainsFunc(text, unicode.IsControl) {
		h.ignore("ruleName", fmt.Sprintf("is not shown: it has over %d characters, or some that cannot be shown",
			bounds.Label))
		return ""
	}
	return text
}

// description returns the description; like a label it is ignored if it cannot be shown.
func (h *Hash) description() string {
	text := h.fields["description"]
	control := func(c rune) bool { return c != '\n' && unicode.IsControl(c) }
	if len(text) > bounds.Description || !utf8.ValidString(text) || strings.ContainsFunc(text, control) {
		h.ignore("description", fmt.Sprintf("is not shown: it has over %d bytes, or some that cannot be shown",
			bounds.Description))
		return ""
	}
	return text
}

// message returns the field message, which has no language, and those such as message.zh, English before the others.
// Messages with mistakes are ignored, because the limits matter more.
func (h *Hash) message() (list []rules.Translation) {
	for _, field := range sorted(h.fields) {
		language, ok := messageLanguage(field)
		if !ok {
			continue
		}
		one := rules.Translation{Language: language, Text: h.fields[field]}
		spec := rules.Spec{Name: "message", Limit: h.Rule.Limit, Message: []rules.Translation{one}}
		var wrong *rules.Error
		if _, err := rules.Compile(&rules.File{Rules: []rules.Spec{spec}}); errors.As(err, &wrong) {
			h.ignore(field, "is not used: "+wrong.Problems[0].Message)
			continue
		}
		list = append(list, one)
	}
	slices.SortStableFunc(list, func(a, b rules.Translation) int { return englishFirst(b) - englishFirst(a) })
	return list
}

func englishFirst(t rules.Translation) int {
	switch t.Language {
	case "":
		return 2
	case "en":
		return 1
	}
	return 0
}

// messageLanguage is the language of a field with a message: zh of message.zh.
func messageLanguage(field string) (language string, ok bool) {
	if field == "message" {
		return "", true
	}
	return strings.CutPrefix(field, "message.")
}

func (h *Hash) ignore(field, message string) {
	h.Ignored = append(h.Ignored, ruleset.Problem{
		Where: ruleset.Quoted(h.key), Field: field, Message: message, State: ruleset.IgnoredState})
}

func (h *Hash) has(field string) bool { _, ok := h.fields[field]; return ok }

// wrong reports the value of a field and the allowed values.
func (h *Hash) wrong(field, allowed string) {
	h.Problems = append(h.Problems, ruleset.Problem{Where: ruleset.Quoted(h.key), Field: field,
		Message: fmt.Sprintf("is %.80q; allowed: %s%s", h.fields[field], allowed, hint(h.fields[field]))})
}

func (h *Hash) say(field, message string) {
	h.Problems = append(h.Problems, ruleset.Problem{Where: ruleset.Quoted(h.key), Field: field, Message: message})
}

// hint names the usual cause of malformed values that programs wrote.
func hint(value string) string {
	if strings.HasPrefix(value, "\xac\xed") {
		return ` (this is a serialized Java object: write hashes with a plain serializer of strings)`
	}
	return ""
}

// names checks which fields there are. A missing field means that the hash is being written; an
// unknown one may be of a newer version.
func (h *Hash) names() {
	if v, ok := h.fields["version"]; ok && v != version {
		h.wrong("version", version+", or no such field; a newer one takes a newer weir")
		return
	}
	for _, field := range needed {
		if !h.has(field) && (field != "limitTarget" || folded(h.fields["limitType"]) != global) {
			h.say(field, "is missing; needed: "+strings.Join(needed, ", "))
		}
	}
	var wrong []string
	for field, value := range h.fields {
		if len(value) > MaxValue || !isKnown(field) {
			wrong = append(wrong, field)
		}
	}
	slices.Sort(wrong)
	unknown := 0
	for _, field := range wrong {
		if len(h.fields[field]) > MaxValue {
			h.say(fmt.Sprintf("%.80q", field), fmt.Sprintf("has %d bytes; at most %d", len(h.fields[field]), MaxValue))
		} else if unknown++; unknown <= 3 {
			h.ignore(fmt.Sprintf("%.80q", field), "is no field that this weir knows, and is ignored"+didYouMean(field))
		}
	}
}

func didYouMean(field string) string {
	if word := nearest.Of(field, slices.Concat(needed, optional)); word != "" {
		return "; did you mean " + word + "?"
	}
	return ""
}

func isKnown(field string) bool {
	if _, ok := messageLanguage(field); ok {
		return true
	}
	return slices.Contains(needed, field) || slices.Contains(optional, field) || slices.Contains(notes, field)
}

func sorted[T any](table map[string]T) []string { return slices.Sorted(maps.Keys(table)) }

// text returns a text; a missing one was reported already.
func (h *Hash) text(field string) string {
	value, ok := h.fields[field]
	if ok && (value == "" || !utf8.ValidString(value) || strings.ContainsFunc(value, control)) {
		h.wrong(field, "a text in UTF-8, not empty, without control characters")
		return ""
	}
	return value
}

func control(c rune) bool { return c < ' ' || c == 0x7f }

func (h *Hash) word(field string, allowed []string) string {
	value, ok := h.fields[field]
	if ok && !slices.Contains(allowed, folded(value)) {
		h.wrong(field, strings.Join(allowed, ", "))
		return ""
	}
	return folded(value)
}

// folded returns a word in capitals with underscores.
func folded(word string) string { return strings.ToUpper(strings.ReplaceAll(word, "-", "_")) }

// choice returns an optional word, in lower case as in rule files.
func (h *Hash) choice(field string, allowed ...string) string {
	return strings.ToLower(h.word(field, allowed))
}

func (h *Hash) flag(field string) bool {
	switch strings.ToLower(h.fields[field]) {
	case "true", "1":
		return true
	case "false", "0":
		return false
	}
	if h.has(field) {
		h.wrong(field, "true, false, 1, 0")
	}
	return false
}

// number returns a whole number; 0 if it is missing.
func (h *Hash) number(field string, least int64) int64 {
	return h.integer(field, least, weir.MaxUnits,
		fmt.Sprintf("a whole number from %d to 4503599627370496 (2^52), in digits alone", least))
}

// maxSeconds is 2^52 microseconds.
const maxSeconds = weir.MaxUnits / 1_000_000

func (h *Hash) seconds(field string) int64 {
	return h.integer(field, 1, maxSeconds,
		fmt.Sprintf("whole seconds from 1 to %d, in digits alone, such as 60 for a minute", int64(maxSeconds)))
}

func (h *Hash) integer(field string, least, most int64, allowed string) int64 {
	value, ok := h.fields[field]
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < least || n > most || strconv.FormatInt(n, 10) != value {
		h.wrong(field, allowed)
		return 0
	}
	return n
}

// limit parses the strategy and its numbers.
func (h *Hash) limit() {
	strategy := h.word("strategy", strategies)
	count, seconds := h.number("limitCount", 0), h.seconds("timeWindow")
	for _, field := range sorted(onlyOf) {
		if h.has(field) && strategy != "" && !slices.Contains(onlyOf[field], strategy) {
			h.say(field, "does not go with strategy "+strategy+"; leave it out")
		}
	}
	burst, queue, slicing := h.number("burst", 1), h.number("queue", 0), h.number("slices", 1)
	zone := h.text("zone")
	if len(h.Problems) > 0 {
		return
	}
	text := strconv.FormatInt(count, 10) + "/" + period(seconds)
	switch strategy {
	case "TOKEN_BUCKET", "GCRA", "LEAKY_BUCKET":
		text = strings.ToLower(strategy) + " " + text + word(" burst ", burst)
	case "LEAKY_QUEUE":
		text = "leaky_queue " + text + word(" queue ", queue)
	case "FIXED_WINDOW":
		text = "fixed_window " + text + " first"
	case "SLIDING_WINDOW", "SLIDING_LOG":
		text = "sliding_log " + text
	case "SLIDING_COUNTER":
		text = "sliding_counter " + text + word(" slices ", slicing)
	case "CALENDAR":
		text = h.calendar(count, seconds, zone)
	case "CONCURRENCY":
		text = fmt.Sprintf("concurrency %d ttl %s", count, period(seconds))
	}
	if count == 0 {
		text = "none"
	}
	h.Rule.Limit = []string{text}
}

// period returns seconds as a rule file has them: 60 are 1m.
func period(seconds int64) string {
	switch {
	case seconds > 0 && seconds%86400 == 0:
		return strconv.FormatInt(seconds/86400, 10) + "d"
	case seconds > 0 && seconds%3600 == 0:
		return strconv.FormatInt(seconds/3600, 10) + "h"
	case seconds > 0 && seconds%60 == 0:
		return strconv.FormatInt(seconds/60, 10) + "m"
	}
	return strconv.FormatInt(seconds, 10) + "s"
}

// word returns an option of a limit; "" for 0.
func word(name string, n int64) string {
	if n == 0 {
		return ""
	}
	return name + strconv.FormatInt(n, 10)
}

func (h *Hash) calendar(count, seconds int64, zone string) string {
	unit := map[int64]string{60: "minute", 3600: "hour", 86400: "day", 604800: "week"}[seconds]
	if unit == "" {
		h.wrong("timeWindow", "with strategy CALENDAR 60 (a minute), 3600 (an hour), 86400 (a day) or 604800 (a week)")
	}
	text := fmt.Sprintf("calendar %d/%s", count, unit)
	if zone != "" {
		text += " in " + zone
	}
	return text
}

// check compiles the rule.
func (h *Hash) check() {
	_, err := rules.Compile(&rules.File{Name: ruleset.Quoted(h.key), Rules: []rules.Spec{*h.Rule}})
	if err == nil {
		return
	}
	list, ok := err.(*rules.Error)
	if !ok {
		h.say("", err.Error())
		return
	}
	for _, p := range list.Problems {
		field := "limitTarget"
		if strings.Contains(p.Field, ".limit") {
			field = "limitCount, timeWindow"
		}
		if h.has(field) {
			h.say(field, fmt.Sprintf("is %.80q: %s", h.fields[field], p.Message))
		} else {
			h.say(field, "cannot be used: "+p.Message)
		}
	}
}
