package rules

import (
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/jsonvalues"
	"github.com/weirproject/weir/internal/ratefields"
)

// JSON has the values of a JSON text by path, such as usage.input_tokens. Attributes that know the body of a request
// have the method JSON() *JSON; the result is not nil. A JSON is not safe for concurrent use.
type JSON struct {
	values interface {
		At(path string) jsonvalues.Value
	} // nil: there is no body
	length int64 // of the body; -1: not known
}

// ReadJSON reads a whole body, which must not change later. The values that the rules of the set name are read in one
// pass. No body has no values; a text that is not JSON, and a list, are as a body that is not read.
func (s *Set) ReadJSON(text []byte) *JSON {
	if len(text) == 0 {
		return new(JSON)
	}
	return &JSON{jsonvalues.NewDocument(text, s.paths), int64(len(text))}
}

// UnreadJSON is the JSON of a body that is not read: too long, compressed, or not there yet. length is its length in
// bytes, or -1 if that is not known.
func UnreadJSON(length int64) *JSON {
	return &JSON{new(jsonvalues.Document), length}
}

// at is the value at a path; a body that is not read has doubtful ones.
func (j *JSON) at(path string) jsonvalues.Value {
	if j.values == nil {
		return jsonvalues.Value{}
	}
	return j.values.At(path)
}

// doubts reports whether a value of the body is doubtful, and the body is of a request: a client could choose the value
// that counts.
func (j *JSON) doubts(v *jsonvalues.Value) bool {
	_, requested := j.values.(*jsonvalues.Document)
	return requested && v.Doubtful
}

// unread reports whether there is a body, and it is not read or no JSON.
func (j *JSON) unread() bool {
	document, ok := j.values.(*jsonvalues.Document)
	return ok && !document.Valid()
}

// knownTexts are values of a body by path.
type knownTexts map[string]string

// At is a text, or missing.
func (t knownTexts) At(path string) (v jsonvalues.Value) {
	if v.Text = []byte(t[path]); len(v.Text) > 0 {
		v.Kind = jsonvalues.Text
	}
	return v
}

// json is the request's body, or nil if the front end does not know bodies.
func (r *Request) json() *JSON {
	if body, ok := r.Attributes.(interface{ JSON() *JSON }); ok {
		return body.JSON()
	}
	return nil
}

// jsonText is the text at a path of the body. A value that services may read differently is noted.
func (r *Request) jsonText(path string) string {
	body := r.json()
	if body == nil {
		return ""
	}
	value := body.at(path)
	text, plain := value.Plain()
	if !plain {
		r.doubted = path
	}
	return text
}

// doubtfulJSON is the mistake of a body at a path: services may read other values there, or weir none.
func doubtfulJSON(path string) error {
	return &weir.InputError{Field: "body json." + path, Given: "a body that is not read, or a value that services " +
		"read differently", Allowed: "a JSON object of at most 1 MiB, with one text or whole number in that place"}
}

// Doubt is a *weir.InputError if Match met, in a condition of the rule, a value in the body that services may read
// differently: a client could choose the rules that apply.
func (s *Set) Doubt(r *Request) (rule *Rule, err error) {
	if r.doubted == "" {
		return nil, nil
	}
	return s.rules[s.asking[r.doubted]], doubtfulJSON(r.doubted)
}

// doubtJSON is Doubt for a path of JSON in a rule's key.
func (r *Request) doubtJSON(path string) error {
	if body := r.json(); body != nil {
		value := body.at(path)
		if _, plain := value.Plain(); !plain {
			return doubtfulJSON(path)
		}
	}
	return nil
}

// matches are the match of the rule with its alternatives, and the matches of its classes.
func (s *Spec) matches() []Match {
	return slices.Concat([]Match{s.Match}, s.Match.Any, s.Match.Not, s.Reserve.matches())
}

// matches are the matches of all classes.
func (r *Reserve) matches() (list []Match) {
	for _, class := range slices.Sorted(maps.Keys(r.Match)) {
		list = append(list, r.Match[class]...)
	}
	return list
}

// jsonPaths are the paths in the conditions of matches.
func jsonPaths(list []Match) (paths []string) {
	for i := range list {
		paths = append(paths, slices.Sorted(maps.Keys(list[i].JSON))...)
	}
	return paths
}

// validPath reports whether a path of JSON is names joined by dots.
func validPath(path string) bool {
	_, err := jsonvalues.New(path)
	return err == nil && validAttribute(strings.ReplaceAll(path, ".", "-"))
}

// named reports whether a name is valid for a source.
func (s source) named(name string) bool {
	if s == sourceJSON {
		return validPath(name)
	}
	return validAttribute(name)
}

// jsonPaths collects the paths that rules name.
func (b *builder) jsonPaths() {
	var paths, answers []string
	for a := range b.attributes {
		if a.kind == sourceJSON {
			paths = append(paths, a.name)
		}
	}
	for _, rule := range b.set.rules {
		for _, c := range rule.everyComponent() {
			if c.source == sourceJSON {
				paths = append(paths, c.name)
			}
		}
		paths = append(paths, rule.cost.from.paths()...)
		if rule.asksUsage {
			paths = append(paths, streamPath, optionsPath, usagePath)
		}
		answers = append(append(answers, rule.cost.settle.paths()...), rule.passed.paths()...)
	}
	b.set.paths, b.set.answers = b.compiledPaths(paths), b.compiledPaths(answers)
}

func (b *builder) compiledPaths(paths []string) *jsonvalues.Paths {
	slices.Sort(paths)
	compiled, err := jsonvalues.New(slices.Compact(paths)...)
	if err != nil {
		b.add(at(-1, "rules"), "%v", err)
	}
	return compiled
}

// An Answer reads the actual cost of a request from its response, as it passes. Rule.Answer makes one. It is not safe
// for concurrent use.
type Answer struct {
	Header func(name string) string // the last line of a trailer or, without one, of a header field
	Bytes  int64                    // of the body; -1: not known

	// Documents is the number of JSON texts, events or elements of a list that have ended in the body.
	Documents int64

	paths *jsonvalues.Paths
	body  *jsonvalues.Latest // nil: it is not read
}

// Answer returns an Answer for the rule, and for the others of its set.
func (r *Rule) Answer() *Answer { return &Answer{paths: r.set.answers} }

// Body returns a writer for the bytes of a body of a Content-Type: JSON, JSON lines or server-sent events, of any
// length. nil if the body is not read. Errors of the writer are for nobody: a body that is not JSON states no cost.
func (a *Answer) Body(contentType string) io.WriteCloser {
	reader := a.paths.Reader()
	body := reader.Body(contentType)
	if body != nil {
		a.body = a.paths.Latest()
		reader.Each = func(values []jsonvalues.Value) {
			a.Documents++
			a.body.Add(values)
		}
	}
	return body
}

// Settles reports whether a part of responses states the rule's actual cost.
func (r *Rule) Settles() bool { return len(r.cost.settle) > 0 }

// SettlesBy reports what the actual cost and stream.count are read from, besides the header: the length of the body,
// and its JSON.
func (r *Rule) SettlesBy() (length, body bool) {
	for _, s := range []sum{r.cost.settle, r.passed} {
		s.all(func(q *quantity) {
			length = length || q.kind == bodySize
			body = body || q.kind == jsonNumber || q.kind == jsonSize
		})
	}
	return length, body
}

// Actual is the actual cost according to a response. The error is a *weir.InputError: the response does not state it.
func (r *Rule) Actual(a *Answer) (units int64, err error) {
	units, known := r.cost.settle.units(a.number)
	if known && units <= weir.MaxUnits {
		return units, nil
	}
	given := "no number"
	if q := r.cost.settle.single(); q != nil && q.kind == attributed {
		return 0, &weir.InputError{Field: "the response's " + q.name, Given: a.Header(q.name),
			Allowed: "a whole number from 0 to 4503599627370496 (2^52)"}
	}
	return 0, &weir.InputError{Field: "the response's " + r.cost.settleText, Given: given,
		Allowed: "numbers with a sum from 0 to 4503599627370496 (2^52)"}
}

// number is a quantity of the response.
func (a *Answer) number(q *quantity) (*big.Rat, bool) {
	switch {
	case q.kind == attributed:
		n, ok := ratefields.Digits(a.Header(q.name))
		return new(big.Rat).SetInt64(n), ok
	case a.body != nil:
		return q.of(&JSON{a.body, a.Bytes})
	}
	return q.of(&JSON{nil, a.Bytes})
}

// Streamed reports whether a Content-Type is of a response that is read event by event.
func Streamed(contentType string) bool { return jsonvalues.Events(contentType) }
