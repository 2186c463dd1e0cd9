package rules

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
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
	return []section{sectionOf(&fileFields), sectionOf(&ruleFields), sectionOf(&matchFields), sectionOf(&alternativeFields),
		sectionOf(&regexFields), sectionOf(&windowFields),
		sectionOf(&overrideFields), sectionOf(&costFields), sectionOf(&countIfFields), sectionOf(&banFields),
		sectionOf(&candidateFields), sectionOf(&onceFields),
		sectionOf(&responseFields), sectionOf(&listFields), sectionOf(&serviceFields), sectionOf(&timeoutFields),
		sectionOf(&healthFields), sectionOf(&tlsFields), sectionOf(&routeFields)}
}

// TestEveryFieldIsInItsTable: each field of the Go types has its word in the table, and no other.
func TestEveryFieldIsInItsTable(t *testing.T) {
	elsewhere := map[string]bool{"name": true, "exceptions": true, "disabled": true, "sets": true, "units": true}
	for _, s := range sections() {
		if s.name == "listed" {
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
			properties[r.word] = r.schema(definitions[r.name])
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
		Required    any               `json:"required"`
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
func (r *row) schema(definition object) object {
	one := object{"$ref": "#/$defs/" + r.name}
	switch {
	case r.words != nil:
		one = object{"enum": r.words}
	case r.name == "":
		one = object{"type": "integer", "minimum": r.from, "maximum": r.to}
	}
	several := object{"type": "array", "minItems": 1, "maxItems": r.most, "items": one}
	if r.unique {
		several["uniqueItems"] = true
	}
	switch {
	case r.list:
		one = several
		if r.unset == required { // rules may be empty
			delete(several, "minItems")
		}
	case r.most > 0:
		one = object{"anyOf": []any{one, several}}
	}
	one["description"] = plainText(r.about)
	if r.unset != "" && r.unset != required {
		one["description"] = plainText(r.about + ". Default: " + r.unset)
	}
	return one
}

var link = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

// plainText is Markdown without links and code marks.
func plainText(text string) string {
	text = strings.ReplaceAll(link.ReplaceAllString(text, "$1"), "`", "")
	return strings.ToUpper(text[:1]) + text[1:]
}

var reference = regexp.MustCompile(`(?s)(<!-- fields of (\w+): generated by go test ./rules -update -->\n).*?(<!-- end -->\n)`)

// TestReferenceIsGenerated: the reference tables of the pages are the tables.
func TestReferenceIsGenerated(t *testing.T) {
	referenceIsGenerated(t, "../docs/reference/rules.md", 11)
	referenceIsGenerated(t, "../docs/howto/gateway.md", 5)
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

// markdown is the section as a table.
func (s section) markdown() string {
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
