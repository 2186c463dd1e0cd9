package jsonvalues_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirproject/weir/internal/jsonvalues"
)

var kinds = [...]string{"missing", "null", "bool", "number", "text", "list", "object"}

func shown(values []jsonvalues.Value) string {
	var all []string
	for _, v := range values {
		one := kinds[v.Kind]
		if len(v.Text) > 0 {
			one = fmt.Sprintf("%s %q", one, v.Text)
		}
		if v.Cut {
			one += " cut"
		}
		if v.Doubtful {
			one += " doubtful"
		}
		all = append(all, one)
	}
	return strings.Join(all, "; ")
}

// strict has read check all of a text, as of a request.
const strict = ""

// read reads a text in two pieces, cut at a byte.
func read(t testing.TB, contentType, text string, cut int, paths ...string) (documents []string, err error) {
	t.Helper()
	compiled, err := jsonvalues.New(paths...)
	if err != nil {
		t.Fatal(err)
	}
	r := compiled.Reader()
	r.Each = func(values []jsonvalues.Value) { documents = append(documents, shown(values)) }
	w := io.WriteCloser(r)
	if contentType != strict {
		w = r.Body(contentType)
	}
	if w == nil {
		t.Fatalf("%s is not read", contentType)
	}
	w.Write([]byte(text[:cut]))
	w.Write([]byte(text[cut:]))
	return documents, w.Close()
}

// TestValuesOfDocuments: wherever a text is cut, its values are the same.
func TestValuesOfDocuments(t *testing.T) {
	const asJSON, lines, sse = "application/json; charset=utf-8", "application/x-ndjson", "text/event-stream"
	tests := []struct {
		about, contentType, text string
		paths                    []string
		want                     []string
	}{
		{"numbers as they are written", asJSON, `{"usage":{"in":12,"out":-0.5e+3,"x":{"in":7}}}`, []string{"usage.in", "usage.out"},
			[]string{`number "12"; number "-0.5e+3"`}},
		{"escapes", asJSON, `{"us\u0065r":"a\n\"\u00e9\ud83d\ude00é\\"}`, []string{"user"}, []string{`text "a\n\"é😀é\\"`}},
		{"the last of a name counts", asJSON, `{"a":1,"a":2}`, []string{"a"}, []string{`number "2"`}},
		{"with all that is in it", asJSON, `{"a":{"b":1,"c":2},"a":{"c":3}}`, []string{"a.b", "a.c"}, []string{`missing; number "3"`}},
		{"null is a value", asJSON, `{"a":{"b":1},"a":null}`, []string{"a.b", "a"}, []string{`missing; null "null"`}},
		{"another case is doubtful", asJSON, `{"a":{"b":1,"B":2}}`, []string{"a.b"}, []string{`number "1" doubtful`}},
		{"so is one further up", asJSON, `{"A":{"b":1}}`, []string{"a.b"}, []string{`missing doubtful`}},
		{"half a surrogate pair", asJSON, `{"a":"x\ud800y","b":"\udc00","c":"\u0000","d":"\ud800"}`, []string{"a", "b", "c", "d"},
			[]string{`text "x�y" doubtful; text "�" doubtful; text "\x00" doubtful; text "�" doubtful`}},
		{"every element of a list", asJSON, `{"a":[{"b":"x"},{"c":1},{"b":"yz"}]}`, []string{"a.*.b", "a"}, []string{`text "yz"; list`}},
		{"names in other lists are not", asJSON, `{"a":[{"b":1}],"c":{"b":2}}`, []string{"a.b", "b"}, []string{`missing; missing`}},
		{"elements of a batch", asJSON, `[{"a":1},{"b":2},3,[{"a":4}]]`, []string{"a"},
			[]string{`number "1"`, `missing`, `missing`, `missing`}},
		{"an empty batch", asJSON, ` [ ] `, []string{"a"}, nil},
		{"a scalar", asJSON, ` 5`, []string{"a"}, []string{`missing`}},
		{"JSON lines", lines, "{\"a\":1}\n{\"a\":2}\r\n\n{\"a\":3}", []string{"a"}, []string{`number "1"`, `number "2"`, `number "3"`}},
		{"no lines", lines, "", []string{"a"}, nil},
		{"events", sse, "event: x\ndata: {\"a\":1}\n\n: comment\n\ndata:{\"a\":\r\ndata: 2}\r\n\r\nid: 5\rdata: {\"a\":3}\r\rdata: [DONE]\n\n",
			[]string{"a"}, []string{`number "1"`, `number "2"`, `number "3"`}},
		{"the event after one that is not JSON", sse, "data: {\"a\n\ndata: {\"a\":2}\n\n", []string{"a"}, []string{`number "2"`}},
		{"an event that the end cuts off", sse, "\ufeffdata: {\"a\":2}", []string{"a"}, []string{`number "2"`}},
		{"a type with a malformed parameter", "Text/Event-Stream; charset", "data: {\"a\":2}\n\n", []string{"a"}, []string{`number "2"`}},
		{"fields that are not data", sse, "dat: {\"a\":1}\n\ndata2: {\"a\":1}\n\ndata\n\n", []string{"a"}, nil},
	}
	for _, test := range tests {
		for cut := range len(test.text) + 1 {
			got, err := read(t, test.contentType, test.text, cut, test.paths...)
			if err != nil || strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("%s, cut at %d: %q, %v; want %q", test.about, cut, got, err, test.want)
				break
			}
		}
	}
}

// TestTextsThatAreNotJSON have an error, wherever they are cut.
func TestTextsThatAreNotJSON(t *testing.T) {
	for _, text := range []string{"", " ", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{,}`, `[1,]`, `[1 2]`, `{"a" 1}`, `{a:1}`, `01`, `1.`,
		`1e`, `-`, `+1`, `.5`, `1.5.2`, `1e5e5`, `1e5.5`, `tru`, `trux`, `nul`, `"a`, "\"\n\"", "\"\xff\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"",
		`"\x"`, `"\u12g4"`, `{} {}`, `{}}`, `[}`, `{]`, "\ufeff{}", strings.Repeat("[", jsonvalues.MaxDepth+1)} {
		for cut := range len(text) + 1 {
			if got, err := read(t, strict, text, cut, "a"); err == nil {
				t.Errorf("%.40q, cut at %d: %q and no error", text, cut, got)
			}
		}
	}
	deep := strings.Repeat("[", jsonvalues.MaxDepth) + strings.Repeat("]", jsonvalues.MaxDepth)
	if _, err := read(t, strict, deep, 0, "a"); err != nil {
		t.Error(err)
	}
}

// TestLengthsOfValues: of texts without quotes, of elements together.
func TestLengthsOfValues(t *testing.T) {
	paths, _ := jsonvalues.New("text", "list", "object", "number", "list.*.t")
	r := paths.Reader()
	var got []int64
	r.Each = func(values []jsonvalues.Value) {
		for _, v := range values {
			got = append(got, v.Size)
		}
	}
	long := strings.Repeat("x", 5000)
	fmt.Fprintf(r, `{"text":%q,"object":{"a": 1},"number":12.5 ,"list":[{"t":"four"},{"t":"five"}],"list":[{"t":"abc"},{"t":"de"}]}`, long)
	if want := []int64{5000, int64(len(`[{"t":"abc"},{"t":"de"}]`)), int64(len(`{"a": 1}`)), 4, 5}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestMemoryDoesNotGrow: neither a long text nor a long stream allocates.
func TestMemoryDoesNotGrow(t *testing.T) {
	paths, _ := jsonvalues.New("usage.total", "choices.*.delta.content")
	event := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("word é ", 1000) + "\"}}],\"usage\":null}\n\n")
	r := paths.Reader()
	documents := 0
	r.Each = func([]jsonvalues.Value) { documents++ }
	w := r.Body("text/event-stream")
	w.Write(event)
	if allocs := testing.AllocsPerRun(1000, func() { w.Write(event) }); allocs > 0 {
		t.Errorf("an event allocates %v times", allocs)
	}
	if documents < 1000 {
		t.Errorf("%d events", documents)
	}
}

// at is the value at a path of decoded JSON, as this package shows it.
func at(value any, path string) string {
	for _, name := range strings.Split(path, ".") {
		object, _ := value.(map[string]any)
		var ok bool
		if value, ok = object[name]; !ok {
			return "missing"
		}
	}
	switch v := value.(type) {
	case nil:
		return `null "null"`
	case bool:
		return fmt.Sprintf("bool %q", fmt.Sprint(v))
	case json.Number:
		return fmt.Sprintf("number %q", v)
	case string:
		if v == "" {
			return "text"
		}
		return fmt.Sprintf("text %q", v)
	case []any:
		return "list"
	}
	return "object"
}

func deep(text []byte) bool {
	return bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > jsonvalues.MaxDepth
}

// FuzzLikeEncodingJSON: the same texts are JSON, with the same values, as for encoding/json.
func FuzzLikeEncodingJSON(f *testing.F) {
	for _, seed := range []string{`{"a":{"b":1.5e3,"c":"x\u00e9\ud83d\ude00"},"a":null,"b":[1,true,false,{"a":{"b":2}}]}`, `[{"a":{"b":"q"}},2]`,
		`{"A":1,"a":{"B":1}}`, `{"a":{"b":"` + strings.Repeat("é", 700) + `"}}`, "-0.5E-3", `"\u0000\ud800"`} {
		f.Add([]byte(seed), 3)
	}
	paths := []string{"a", "a.b", "b"}
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		if cut < 0 || cut > len(text) || deep(text) {
			return
		}
		got, err := read(t, strict, string(text), cut, paths...)
		if valid := json.Valid(text) && utf8.Valid(text); valid != (err == nil) {
			t.Fatalf("%q: %v, and valid for encoding/json: %v", text, err, valid)
		}
		if err != nil {
			return
		}
		plain := func(documents []string) string {
			return strings.ReplaceAll(strings.Join(documents, "\n"), " doubtful", "")
		}
		if loose, err := read(t, "application/json", string(text), cut, paths...); err != nil || plain(loose) != plain(got) {
			t.Fatalf("%q of a response: %v %s, want %s", text, err, loose, got)
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		var value any
		if err := decoder.Decode(&value); err != nil {
			t.Fatal(err)
		}
		documents, ok := value.([]any)
		if !ok {
			documents = []any{value}
		}
		if len(got) != len(documents) {
			t.Fatalf("%q: %d documents, want %d", text, len(got), len(documents))
		}
		for i, document := range documents {
			var want []string
			for _, path := range paths {
				want = append(want, at(document, path))
			}
			plain := strings.ReplaceAll(got[i], " doubtful", "")
			if all := strings.Join(want, "; "); plain != all && !strings.Contains(plain, " cut") && !strings.Contains(all, "doubtful") {
				t.Errorf("%q: %s, want %s", text, plain, all)
			}
		}
	})
}

// FuzzEvents: a stream is read the same wherever it is cut.
func FuzzEvents(f *testing.F) {
	f.Add(`data: {"x":"\"\\\u00e9\\\"a","a":1}`+"\n\n", 14)
	f.Add("data: {\"a\":1}\n\ndata: [DONE]\r\n\r\n: x\rdata:{\"a\":2}\n", 9)
	f.Fuzz(func(t *testing.T, text string, cut int) {
		if cut < 0 || cut > len(text) {
			return
		}
		whole, _ := read(t, "text/event-stream", text, 0, "a")
		if pieces, _ := read(t, "text/event-stream", text, cut, "a"); strings.Join(whole, "\n") != strings.Join(pieces, "\n") {
			t.Errorf("%q, cut at %d: %q, want %q", text, cut, pieces, whole)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	paths, _ := jsonvalues.New("usage.total_tokens")
	for name, words := range map[string]string{"words": "some words of an answer, ", "escapes": `It is \"fair\":\n21 °C, some clouds later. `} {
		text := []byte(`{"choices":[{"message":{"content":"` + strings.Repeat(words, 40_000) + `"}}],"usage":{"total_tokens":5}}`)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			r := paths.Reader()
			body := r.Body("application/json")
			for b.Loop() {
				r.Reset()
				body.Write(text)
			}
		})
	}
}

// TestPlacesOfValues: each value as it is written, and whether the document has it twice.
func TestPlacesOfValues(t *testing.T) {
	for _, c := range []struct {
		text, want string
		twice      bool
	}{
		{`{"a":"x\u0061"}`, `"x\u0061"`, false}, {` { "a" : -1.50 } `, "-1.50", false}, {`{"a":null}`, "null", false},
		{`{"a":[1, {"a":2}],"b":1}`, `[1, {"a":2}]`, false}, {`{"a": {"b": "}"}}`, `{"b": "}"}`, false},
		{`{"a":1,"a":2}`, "2", true}, {`{"a":null,"b":1,"a":""}`, `""`, true}, {`{"b":{"a":1},"a":2}`, "2", false},
	} {
		paths, err := jsonvalues.New("a")
		if err != nil {
			t.Fatal(err)
		}
		r := paths.Reader()
		r.Each = func(values []jsonvalues.Value) {
			if got := string(values[0].In([]byte(c.text))); got != c.want || values[0].Twice != c.twice {
				t.Errorf("%s: %s, twice %t", c.text, got, values[0].Twice)
			}
		}
		if _, err := r.Write([]byte(c.text)); err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}
