package rules

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

// A Refusal has the values of the placeholders in a response's body.
type Refusal struct {
	Status     int
	RetryAfter int64    // whole seconds, rounded up, as in the header; 0: no wait helps
	Message    string   // a sentence for people, in Language
	Violated   []string // names of the limits that refuse; none for a list
	Language   string   // such as "en" or "zh"
}

// placeholders are the fields of a Refusal that a body may show: {{.Message}}.
var placeholders = []string{"Status", "RetryAfter", "Message", "Violated", "Language"}

// value is the field of that name.
func (r *Refusal) value(name string) any {
	return map[string]any{"Status": r.Status, "RetryAfter": r.RetryAfter, "Message": r.Message,
		"Violated": r.Violated, "Language": r.Language}[name]
}

// escapes are the functions that a placeholder may name: {{html .Message}}.
var escapes = []string{"html", "json", "js", "urlquery"}

// escaped is a value in the syntax of a function; "" is plain text, where commas separate the items of a list.
func escaped(function string, value any) string {
	if function == "json" {
		text, _ := json.Marshal(value) // numbers, texts and lists of them always have a form
		return string(text)
	}
	text := fmt.Sprint(value)
	if list, ok := value.([]string); ok {
		text = strings.Join(list, ", ")
	}
	switch function {
	case "html":
		return template.HTMLEscapeString(text)
	case "js":
		return template.JSEscapeString(text)
	case "urlquery":
		return template.URLQueryEscaper(text)
	}
	return text
}

// A bodyText is a body with placeholders.
type bodyText []bodyPart

// A bodyPart is literal text, or a field of a Refusal.
type bodyPart struct{ literal, field, escape string }

// Body is the body of the rule's response to a refusal. ok is false if it is problem or json, which front ends render.
// Its length is bounded by the length of the file's text and of the refusal.
func (r *Rule) Body(refusal *Refusal) (text []byte, ok bool) {
	for _, part := range r.response.text {
		text = append(text, part.literal...)
		if part.field != "" {
			text = append(text, escaped(part.escape, refusal.value(part.field))...)
		}
	}
	return text, r.response.text != nil
}

// parseBody reads a body with placeholders. The syntax is a small part of text/template's: conditions, loops
// and pipelines would need a check that they end, and that their output is bounded.
func parseBody(text string) (body bodyText, complaint string) {
	line := 1
	for {
		literal, rest, found := strings.Cut(text, "{{")
		line += strings.Count(literal, "\n")
		body = append(body, bodyPart{literal: literal})
		if !found {
			return body, ""
		}
		inner, after, closed := strings.Cut(rest, "}}")
		if !closed {
			return nil, fmt.Sprintf("line %d: {{ without }}", line)
		}
		part, complaint := parsePlaceholder(inner)
		if complaint != "" {
			return nil, fmt.Sprintf("line %d: %s", line, complaint)
		}
		line += strings.Count(inner, "\n")
		body, text = append(body, part), after
	}
}

// parsePlaceholder reads the text between {{ and }}: .Message, html .Message or .Message | html.
func parsePlaceholder(inner string) (part bodyPart, complaint string) {
	words := strings.Fields(inner)
	if len(words) == 3 && words[1] == "|" {
		words = []string{words[2], words[0]}
	}
	if len(words) == 2 && slices.Contains(escapes, words[0]) {
		part.escape, words = words[0], words[1:]
	}
	field, dotted := "", false
	if len(words) == 1 {
		field, dotted = strings.CutPrefix(words[0], ".")
	}
	switch {
	case !dotted:
		return part, fmt.Sprintf("{{%.60s}} is no placeholder; allowed: {{.%s}}, and to escape a value {{%s}}; "+
			"write the text for all cases, without conditions and loops", strings.TrimSpace(inner),
			strings.Join(placeholders, "}}, {{."), strings.Join(escapes, " .Message}}, {{")+" .Message")
	case !slices.Contains(placeholders, field):
		return part, fmt.Sprintf("unknown field %.80q; %s", "."+field, oneOf(field, placeholders))
	}
	part.field = field
	return part, ""
}
