package rules

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A row is a field of any mapping.
type row struct {
	word, about, unset string
	shape
}

// A section is a mapping of any type, with the types of its fields.
type section struct {
	name string
	rows []row
	of   reflect.Type
}

func sectionOf[T any](m *mapping[T]) section {
	s := section{name: m.name, of: reflect.TypeFor[T]()}
	for _, f := range m.fields {
		s.rows = append(s.rows, row{f.word, f.about, f.unset, f.value.shape})
	}
	return s
}

func sections() []section {
	list := []section{sectionOf(&fileFields), sectionOf(&ruleFields), sectionOf(&matchFields), sectionOf(&alternativeFields),
		sectionOf(&regexFields), sectionOf(&mcpFields), sectionOf(&windowFields),
		sectionOf(&overrideFields), sectionOf(&costFields), sectionOf(&reserveFields), sectionOf(&fairFields),
		sectionOf(&streamFields),
		sectionOf(&countIfFields), sectionOf(&banFields),
		sectionOf(&candidateFields), sectionOf(&onceFields), sectionOf(&overlayFields),
		sectionOf(&responseFields), sectionOf(&listFields), sectionOf(&serviceFields), sectionOf(&timeoutFields),
		sectionOf(&healthFields), sectionOf(&tlsFields), sectionOf(&concurrencyFields), sectionOf(&queueFields), sectionOf(&routeFields)}
	return append(list, serverSections(&serverFields)...)
}

// serverSections are a section of the settings and the ones in it.
func serverSections(m *mapping[Server]) []section {
	list := []section{sectionOf(m)}
	for _, f := range m.fields {
		if f.value.inner != nil {
			list = append(list, serverSections(f.value.inner)...)
		}
	}
	return list
}

// TestEveryFieldIsInItsTable: each field of the Go types has its word in the table, and no other.
func TestEveryFieldIsInItsTable(t *testing.T) {
	elsewhere := map[string]bool{"name": true, "server": true, "exceptions": true, "disabled": true, "sets": true, "units": true}
	for _, s := range sections() {
		if s.name == "listed" || s.name == "overlay" || s.of == reflect.TypeFor[Server]() {
			continue
		}
		words := make(map[string]bool)
		for _, r := range s.rows {
			words[r.word] = true
		}
		for f := range s.of.Fields() {
			word := strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(f.Name, "${1}_$2"))
			if !words[word] && !(elsewhere[word] && (s.name == "file" || s.name == "cost")) &&
				!(s.name == "alternative" && (word == "any" || word == "not")) {
				t.Errorf("%v.%s has no row %q", s.of, f.Name, word)
			}
			delete(words, word)
		}
		for word := range words {
			t.Errorf("%q of %s is no field of %v", word, s.name, s.of)
		}
	}
}

// TestOverlaySetsWhatMatchesNothing: each field of a rule is one of an overlay, or says which requests the rule matches, by
// which key it counts, or what it is.
func TestOverlaySetsWhatMatchesNothing(t *testing.T) {
	others := []string{"name", "enabled", "match", "group", "schedule", "allow", "deny", "key", "on_missing", "limit",
		"overrides", "count_if", "once", "hold_until", "alias", "replaces", "quota", "metadata",
		"preset", "stream"}
	for _, r := range sectionOf(&ruleFields).rows {
		if slices.Contains(overlayWords, r.word) == slices.Contains(others, r.word) {
			t.Errorf("%s: may an overlay set it? Not if it changes which requests the rule matches, or its key", r.word)
		}
	}
	if got, want := len(overlayFields.fields), 2+len(overlayWords); got != want {
		t.Errorf("an overlay has %d fields, want %d", got, want)
	}
}

// generated compares a file with what the tables give, or with -update writes it.
func generated(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	if flag.Lookup("update").Value.String() != "true" {
		t.Errorf("%s differs from the tables of fields.go; write it with: go test ./rules -update", path)
	} else if err := os.WriteFile(path, want, 0o644); err != nil {
		t.Fatal(err)
	}
}

type object = map[string]any

// TestSchemaIsGenerated: schema.json is the tables, and the shapes of values in testdata/shapes.json.
func TestSchemaIsGenerated(t *testing.T) {
	text, err := os.ReadFile("testdata/shapes.json")
	if err != nil {
		t.Fatal(err)
	}
	var definitions map[string]object
	if err := json.Unmarshal(text, &definitions); err != nil {
		t.Fatal(err)
	}
	for _, s := range sections() {
		properties, must := object{}, []string{}
		for _, r := range s.rows {
			properties[r.word] = r.schema()
			if r.unset == required {
				must = append(must, r.word)
			}
		}
		definition := definitions[s.name]
		if definition == nil {
			definition = object{}
			definitions[s.name] = definition
		}
		definition["type"], definition["additionalProperties"], definition["properties"] = "object", false, properties
		if len(must) > 0 {
			definition["required"] = must
		}
	}
	file := definitions["file"]
	delete(definitions, "file")
	schema := struct {
		Schema      any               `json:"$schema"`
		ID          any               `json:"$id"`
		Title       any               `json:"title"`
		Description any               `json:"description"`
		Type        any               `json:"type"`
		Additional  any               `json:"additionalProperties"`
		Required    any               `json:"required,omitempty"`
		Properties  any               `json:"properties"`
		Defs        map[string]object `json:"$defs"`
	}{file["$schema"], file["$id"], file["title"], file["description"], file["type"], file["additionalProperties"],
		file["required"], file["properties"], definitions}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	generated(t, "schema.json", out.Bytes())
}

// schema is the JSON Schema of a field.
func (r *row) schema() object {
	one := r.shape.schema()
	if r.name == "rule" { // rules may be empty
		delete(one, "minItems")
	}
	one["description"] = described(r.about)
	if r.unset != "" && r.unset != required {
		one["description"] = described(r.about + ". Default: " + r.unset)
	}
	return one
}

// schema is the JSON Schema of a value.
func (s *shape) schema() object {
	one := object{"$ref": "#/$defs/" + s.name}
	switch {
	case s.first != nil:
		return object{"anyOf": []any{s.first.schema(), one}}
	case s.words != nil:
		one = object{"enum": s.words}
	case s.name == "":
		one = object{"type": "integer", "minimum": s.from, "maximum": s.to}
	}
	several := object{"type": "array", "minItems": 1, "maxItems": s.most, "items": one}
	if s.unique {
		several["uniqueItems"] = true
	}
	switch {
	case s.list:
		return several
	case s.most > 0:
		return object{"anyOf": []any{one, several}}
	}
	return one
}

// described is plain text as a sentence.
func described(text string) string {
	text = plainText(text)
	return strings.ToUpper(text[:1]) + text[1:]
}

var reference = regexp.MustCompile(`(?s)(<!-- fields of (\w+): generated by go test ./rules -update -->\n).*?(<!-- end -->\n)`)

// TestReferenceIsGenerated: the reference tables of the pages are the tables.
func TestReferenceIsGenerated(t *testing.T) {
	for page, tables := range map[string]int{"reference/rules.md": 2, "reference/matching.md": 2, "reference/keys.md": 0,
		"reference/exceptions.md": 2, "reference/counting.md": 3, "reference/repeated-requests.md": 1,
		"reference/rollout.md": 1, "reference/responses.md": 1, "reference/services.md": 7, "reference/server.md": 1,
		"reference/fair.md": 1, "reference/overlay.md": 1} {
		referenceIsGenerated(t, "../docs/"+page, tables)
	}
}

func referenceIsGenerated(t *testing.T, path string, tables int) {
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]section)
	for _, s := range sections() {
		known[s.name] = s
	}
	found := 0
	page = reference.ReplaceAllFunc(page, func(block []byte) []byte {
		parts := reference.FindSubmatch(block)
		found++
		return fmt.Appendf(nil, "%s%s%s", parts[1], known[string(parts[2])].markdown(), parts[3])
	})
	page = keyTable.ReplaceAll(page, []byte("${1}"+keySources()+"${2}"))
	if found != tables {
		t.Errorf("%s: %d tables are marked, want %d", path, found, tables)
	}
	generated(t, path, page)
}

// serverMarkdown is the section server as one table of paths. The fields that each listener has are those of http.
func serverMarkdown() string {
	text := "| field | value | default |\n| --- | --- | --- |\n"
	seen := make(map[*field[Server]]bool)
	known := make(map[string]bool)
	serverFields.walk("", func(path string, f *field[Server]) {
		repeated := known[f.about] && f.word != "listen"
		if seen[f] || repeated {
			return
		}
		seen[f], known[f.about] = true, true
		text += fmt.Sprintf("| `%s` | %s | %s |\n", path, f.about, f.unset)
	})
	return text
}

// markdown is the section as a table.
func (s section) markdown() string {
	if s.name == "server" {
		return serverMarkdown()
	}
	head := "| field | values | default |\n| --- | --- | --- |\n"
	if s.name == "match" {
		head = "| condition | meets it |\n| --- | --- |\n"
	}
	for _, r := range s.rows {
		head += fmt.Sprintf("| `%s` | %s |", r.word, r.about)
		if s.name != "match" {
			head += " " + r.unset + " |"
		}
		head += "\n"
	}
	return strings.ReplaceAll(head, "|  |", "| |")
}
