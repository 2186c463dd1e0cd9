package ruletest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/nearest"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// A parser collects the mistakes of a file.
type parser struct {
	file     *File
	problems []rules.Problem
}

// maxProblems is the maximum of mistakes that are listed.
const maxProblems = 50

func (p *parser) wrong(n *yaml.Node, format string, args ...any) {
	if len(p.problems) > maxProblems {
		return
	}
	problem := rules.Problem{File: p.file.Name, Line: n.Line, Column: n.Column, Message: fmt.Sprintf(format, args...)}
	if n.Line > 0 && n.Line <= len(p.file.lines) {
		problem.Source = p.file.lines[n.Line-1]
	}
	p.problems = append(p.problems, problem)
}

func (p *parser) err() error {
	if len(p.problems) == 0 {
		return nil
	}
	kept := p.problems[:min(len(p.problems), maxProblems)]
	return &rules.Error{Problems: kept, Omitted: len(p.problems) - len(kept)}
}

// lineEnd is what YAML counts as the end of a line (YAML 1.1, 5.4).
var lineEnd = regexp.MustCompile(`\r\n|[\r\n\x{85}\x{2028}\x{2029}]`)

// Parse reads a file of tests. The error is a *rules.Error with every mistake, at its line.
func Parse(name string, text []byte) (*File, error) {
	p := &parser{file: &File{Name: name, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}}
	if len(text) > rules.MaxFile { // before anything looks at each of its bytes
		p.wrong(&yaml.Node{Line: 1, Column: 1}, "the file has over %d bytes, which is the most", rules.MaxFile)
		return nil, p.err()
	}
	p.file.lines = lineEnd.Split(string(text), -1)
	if root := p.document(text); root != nil {
		p.refuse(root)
		p.root(root)
	}
	return p.file, p.err()
}

func (p *parser) document(text []byte) *yaml.Node {
	loader, err := yaml.NewLoader(bytes.NewReader(text),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	var first, second yaml.Node
	if err == nil {
		err = loader.Load(&first)
	}
	var load *yaml.LoadError
	switch {
	case errors.As(err, &load):
		at := &yaml.Node{Line: max(1, load.Mark.Line), Column: max(1, load.Mark.Column)}
		p.wrong(at, "not YAML: %s", load.Message)
	case err == io.EOF || err == nil && len(first.Content) == 0:
		p.wrong(&yaml.Node{Line: 1, Column: 1}, "the file is empty; write rules: and tests:")
	case err != nil:
		p.wrong(&yaml.Node{Line: 1, Column: 1}, "not YAML: %v", err)
	default:
		if loader.Load(&second) != io.EOF {
			p.wrong(&yaml.Node{Line: max(1, second.Line), Column: 1},
				"a second document; a file of tests is one, without --- in it")
		}
		return first.Content[0]
	}
	return nil
}

// refuse reports YAML that is not allowed, as in a file of rules.
func (p *parser) refuse(n *yaml.Node) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		p.wrong(n, "anchors, aliases and tags (&, * and !) are not allowed; quote a text that begins so")
	}
	for _, child := range n.Content {
		p.refuse(child)
	}
}

// A field reads the value of a word.
type field map[string]func(n *yaml.Node)

// read reads a mapping. Unknown words are mistakes, unless others is given.
func (p *parser) read(n *yaml.Node, what string, fields field, others func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		p.wrong(n, "%s must be fields with values, such as name: value", what)
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		set, known := fields[key.Value]
		switch {
		case seen[key.Value]:
			p.wrong(key, "%.80q occurs twice", key.Value)
		case known:
			set(value)
		case others != nil:
			others(key, value)
		default:
			p.wrong(key, "unknown field %.80q; %s", key.Value, oneOf(key.Value, fields))
		}
		seen[key.Value] = true
	}
}

func oneOf[T any](given string, allowed map[string]T) string {
	words := make([]string, 0, len(allowed))
	for word := range allowed {
		words = append(words, word)
	}
	slices.Sort(words)
	text := "allowed: " + strings.Join(words, ", ")
	if meant := nearest.Of(given, words); meant != "" {
		text = fmt.Sprintf("did you mean %q? %s", meant, text)
	}
	return text
}

// root reads the file. With a list of rules, it is a file of rules with tests in it.
func (p *parser) root(n *yaml.Node) {
	var ruleFile, tests *yaml.Node
	var others []*yaml.Node
	p.read(n, "the file", field{
		"rules": func(n *yaml.Node) { ruleFile = n },
		"tests": func(n *yaml.Node) { tests = n },
		"start": func(n *yaml.Node) { p.start(n) },
	}, func(key, _ *yaml.Node) { others = append(others, key) })
	switch {
	case n.Kind != yaml.MappingNode:
		return
	case ruleFile == nil:
		p.wrong(n, "rules is missing: the name of a file, or a list of rules")
	case ruleFile.Kind == yaml.ScalarNode:
		p.file.Rules = p.text(ruleFile, "rules")
		for _, key := range others {
			p.wrong(key, "unknown field %.80q beside the name of a file with rules; allowed: rules, start, tests",
				key.Value)
		}
	default:
		p.inline(n)
	}
	if tests == nil {
		p.wrong(n, "tests is missing: a list of tests, each with a name and requests")
		return
	}
	for _, one := range p.items(tests, "tests") {
		p.test(one)
	}
}

func (p *parser) items(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		p.wrong(n, "%s must be a list that is not empty: each begins with a dash", what)
		return nil
	}
	return n.Content
}

// inline blanks the tests, so that mistakes in the rest have the lines of this file.
func (p *parser) inline(n *yaml.Node) {
	lines := slices.Clone(p.file.lines)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, end := n.Content[i], len(lines)+1
		if i+2 < len(n.Content) {
			end = n.Content[i+2].Line
		}
		if n.Style&yaml.FlowStyle != 0 || end == key.Line {
			p.wrong(key, "beside a list of rules, each field of the file begins a line of its own")
			return
		}
		if key.Value == "tests" || key.Value == "start" {
			clear(lines[key.Line-1 : end-1])
		}
	}
	p.file.text = []byte(strings.Join(lines, "\n"))
}

func (p *parser) start(n *yaml.Node) {
	start, err := time.Parse(time.RFC3339, n.Value)
	if err != nil || start.Year() < 1971 || start.Year() > 2999 {
		p.wrong(n, "start is %.80q; allowed: a time from 1971 on, such as 2026-03-01T08:00:00+08:00", n.Value)
		return
	}
	p.file.Start = start
}

func (p *parser) test(n *yaml.Node) {
	t := Test{Line: n.Line}
	var requests *yaml.Node
	p.read(n, "a test", field{
		"name":     func(n *yaml.Node) { t.Name = p.text(n, "name") },
		"requests": func(n *yaml.Node) { requests = n },
	}, nil)
	switch {
	case n.Kind != yaml.MappingNode:
		return
	case t.Name == "" || slices.ContainsFunc(p.file.Tests, func(o Test) bool { return o.Name == t.Name }):
		p.wrong(n, "each test needs a name of its own")
	case requests == nil:
		p.wrong(n, "requests is missing: a list of requests, such as - {path: /login, expect: passed}")
		return
	}
	if requests == nil {
		return
	}
	held, now := make(map[string]bool), time.Duration(0)
	for _, one := range p.items(requests, "requests") {
		s := Step{Line: one.Line, Column: one.Column, At: now, Repeat: 1}
		p.step(one, &s, held)
		if s.At < now {
			p.wrong(one, "at is %v, before the end of the request above, %v", s.At, now)
		}
		if now = s.At; s.Every > 0 && time.Duration(s.Repeat-1) > (maxTime-now)/s.Every {
			p.wrong(one, "the last repetition is more than %v after the start", maxTime)
		} else {
			now += time.Duration(s.Repeat-1) * s.Every
		}
		t.Steps = append(t.Steps, s)
	}
	if !slices.ContainsFunc(t.Steps, func(s Step) bool { return s.Expect != nil }) {
		p.wrong(n, "no request of the test has an expect, so it cannot fail; add one, such as expect: passed")
	}
	p.file.Tests = append(p.file.Tests, t)
}

func (p *parser) step(n *yaml.Node, s *Step, held map[string]bool) {
	r := &s.Request
	r.Client, r.Method, r.Path = anyone, "GET", "/"
	var hold *yaml.Node
	p.read(n, "a request", field{
		"at":         func(n *yaml.Node) { s.At = p.duration(n, "at") },
		"repeat":     func(n *yaml.Node) { s.Repeat = int(p.number(n, "repeat", 1, maxRepeat)) },
		"every":      func(n *yaml.Node) { s.Every = p.duration(n, "every") },
		"method":     func(n *yaml.Node) { r.Method = p.text(n, "method") },
		"host":       func(n *yaml.Node) { p.host(n, r) },
		"path":       func(n *yaml.Node) { r.Path = p.text(n, "path") },
		"route":      func(n *yaml.Node) { r.Route = p.text(n, "route") },
		"user":       func(n *yaml.Node) { r.User = p.text(n, "user") },
		"service":    func(n *yaml.Node) { r.Service = p.text(n, "service") },
		"client":     func(n *yaml.Node) { p.client(n, r) },
		"header":     func(n *yaml.Node) { s.Header = p.table(n, "header", textproto.CanonicalMIMEHeaderKey) },
		"query":      func(n *yaml.Node) { s.Query = p.table(n, "query", asIs) },
		"cookie":     func(n *yaml.Node) { s.Cookie = p.table(n, "cookie", asIs) },
		"body":       func(n *yaml.Node) { s.Body = p.table(n, "body", asIs) },
		"json":       func(n *yaml.Node) { s.JSON = p.json(n) },
		"descriptor": func(n *yaml.Node) { p.descriptor(n, s) },
		"mcp":        func(n *yaml.Node) { p.message(n, s) },
		"cost":       func(n *yaml.Node) { s.Cost = new(p.number(n, "cost", 0, weir.MaxUnits)) },
		"settle":     func(n *yaml.Node) { s.Settle = new(p.number(n, "settle", 0, weir.MaxUnits)) },
		"hold":       func(n *yaml.Node) { hold, s.Hold = n, p.text(n, "hold") },
		"release":    func(n *yaml.Node) { s.Release = p.release(n, held) },
		"country":    func(n *yaml.Node) { r.Country = p.country(n) },
		"asn":        func(n *yaml.Node) { r.ASN = uint32(p.number(n, "asn", 1, 1<<32-1)) },
		"response":   func(n *yaml.Node) { s.Response = p.response(n) },
		"store":      func(n *yaml.Node) { s.Store = p.word(n, "store", stores) },
		"expect":     func(n *yaml.Node) { s.Expect = p.expect(n, s) },
	}, nil)
	switch {
	case s.Every > 0 && s.Repeat == 1:
		p.wrong(n, "every needs a repeat of 2 or more")
	case hold != nil && (held[s.Hold] || s.Repeat > 1 || s.Release != ""):
		p.wrong(hold, "hold needs a name that no other request has, and no repeat and release")
	case hold != nil && s.Response != nil:
		p.wrong(hold, "hold has no response: the request goes on; give the response to its release")
	case s.Store != "" && !onlyStore(n):
		p.wrong(n, "store is no request: it has at, and nothing else")
	case s.Release != "" && (s.Expect != nil || s.Repeat > 1):
		p.wrong(n, "a release is no request: it has no expect and repeat")
	}
	if hold != nil {
		held[s.Hold] = true
	}
}

// onlyStore reports whether a step has no other fields than store and at.
func onlyStore(n *yaml.Node) bool {
	for i := 0; i < len(n.Content); i += 2 {
		if word := n.Content[i].Value; word != "store" && word != "at" {
			return false
		}
	}
	return true
}

func (p *parser) release(n *yaml.Node, held map[string]bool) string {
	name := p.text(n, "release")
	if !held[name] {
		p.wrong(n, "release is %.80q; allowed: the hold of a request above that was not released", name)
	}
	delete(held, name)
	return name
}

func (p *parser) client(n *yaml.Node, r *rules.Request) {
	address, err := netip.ParseAddr(p.text(n, "client"))
	if err != nil {
		p.wrong(n, "client is %.80q; allowed: an address, such as 203.0.113.7", n.Value)
		return
	}
	r.Client = address.Unmap().WithZone("")
}

// json reads the text of a JSON body.
func (p *parser) json(n *yaml.Node) string {
	text := p.text(n, "json")
	if !json.Valid([]byte(text)) {
		p.wrong(n, "json is %.80q; allowed: a text in quotes that is JSON, such as '{\"max_tokens\": 50}'", text)
	}
	return text
}

// message reads a message of the Model Context Protocol. A tool alone is called.
func (p *parser) message(n *yaml.Node, s *Step) {
	s.MCP = p.table(n, "mcp", asIs)
	for name := range s.MCP {
		if name != "method" && name != "tool" {
			p.wrong(n, "mcp has %.80q; allowed: method, tool", name)
		}
	}
	if s.MCP["tool"] != "" && s.MCP["method"] == "" {
		s.MCP["method"] = "tools/call"
	}
}

// descriptor reads descriptors, in the order of their names in rules.
func (p *parser) descriptor(n *yaml.Node, s *Step) {
	s.Descriptor = p.table(n, "descriptor", asIs)
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		s.Request.DescriptorKeys = append(s.Request.DescriptorKeys, n.Content[i].Value)
	}
}

func (p *parser) country(n *yaml.Node) string {
	code := p.text(n, "country")
	if !rules.IsCountry(code) {
		p.wrong(n, "country is %.80q; allowed: a code of ISO 3166 in capitals, such as CN", n.Value)
	}
	return code
}

func (p *parser) response(n *yaml.Node) *gate.Response {
	r := &gate.Response{Header: make(map[string][]string)}
	p.read(n, "response", field{
		"status": func(n *yaml.Node) { r.Status = int(p.number(n, "status", 100, 599)) },
		"header": func(n *yaml.Node) {
			for name, value := range p.table(n, "header", textproto.CanonicalMIMEHeaderKey) {
				r.Header[name] = []string{value}
			}
		},
	}, nil)
	if n.Kind == yaml.MappingNode && r.Status == 0 {
		p.wrong(n, "response has no status, such as status: 401")
	}
	return r
}

func (p *parser) host(n *yaml.Node, r *rules.Request) {
	host, err := pathform.Host(p.text(n, "host"))
	if err != nil {
		p.wrong(n, "%v", err)
	}
	r.Host = host
}

var stores = map[string]int{storeDown: 0, storeUp: 0}

// outcomes and reasons are the words of the gate.
var (
	outcomes = map[string]int{"passed": 0, "refused": 0, "denied": 0, "failed": 0}
	reasons  = map[string]int{"no_rule": 0, "within_limits": 0, "allow_list": 0, "limit_exceeded": 0, "banned": 0,
		"deny_list": 0, "missing_key": 0, "store_failed": 0, "bad_input": 0, "canceled": 0, "repeated": 0}
)

func (p *parser) expect(n *yaml.Node, s *Step) *Expect {
	e := new(Expect)
	if n.Kind == yaml.ScalarNode {
		e.Outcome = p.word(n, "expect", outcomes)
		return e
	}
	p.read(n, "expect", field{
		"passed":      func(n *yaml.Node) { e.Passed = new(int(p.number(n, "passed", 0, maxRepeat))) },
		"outcome":     func(n *yaml.Node) { e.Outcome = p.word(n, "outcome", outcomes) },
		"reason":      func(n *yaml.Node) { e.Reason = p.word(n, "reason", reasons) },
		"rule":        func(n *yaml.Node) { e.Rule = p.text(n, "rule") },
		"retry_after": func(n *yaml.Node) { e.RetryAfter = new(p.wait(n)) },
		"delay":       func(n *yaml.Node) { e.Delay = new(p.duration(n, "delay")) },
		"remaining":   func(n *yaml.Node) { e.Remaining = new(p.number(n, "remaining", 0, weir.MaxUnits)) },
		"status":      func(n *yaml.Node) { e.Status = int(p.number(n, "status", 200, 599)) },
		"headers":     func(n *yaml.Node) { e.Headers = p.table(n, "headers", strings.ToLower) },
		"shadow":      func(n *yaml.Node) { e.Shadow = p.shadow(n) },
	}, nil)
	return e
}

// shadow reads what shadow rules and candidates would do.
func (p *parser) shadow(n *yaml.Node) map[string]string {
	table := p.table(n, "shadow", asIs)
	for name, outcome := range table {
		if outcome != "passed" && outcome != "refused" {
			p.wrong(n, "shadow.%s is %.80q; allowed: passed, refused", name, outcome)
		}
	}
	return table
}

func (p *parser) word(n *yaml.Node, what string, allowed map[string]int) string {
	word := p.text(n, what)
	if _, ok := allowed[word]; !ok {
		p.wrong(n, "%s is %.80q; %s", what, word, oneOf(word, allowed))
	}
	return word
}

func (p *parser) wait(n *yaml.Node) time.Duration {
	if n.Value == "never" {
		return weir.Never
	}
	return p.duration(n, "retry_after")
}

func (p *parser) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || n.Value == "" {
		p.wrong(n, "%s must be one value that is not empty", what)
		return ""
	}
	return n.Value
}

func (p *parser) number(n *yaml.Node, what string, least, most int64) int64 {
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || i < least || i > most {
		p.wrong(n, "%s is %.80q; allowed: a whole number from %d to %d", what, n.Value, least, most)
		return least
	}
	return i
}

// duration reads 90s, 1h30m or 2d.
func (p *parser) duration(n *yaml.Node, what string) time.Duration {
	text, days := n.Value, time.Duration(0)
	if before, after, ok := strings.Cut(text, "d"); ok {
		if n, err := strconv.ParseUint(before, 10, 16); err == nil {
			days, text = time.Duration(n)*24*time.Hour, after
			if text == "" {
				text = "0s"
			}
		}
	}
	d, err := time.ParseDuration(text)
	if n.Kind != yaml.ScalarNode || err != nil || d < 0 || d > maxTime-days || d%time.Microsecond != 0 {
		p.wrong(n, "%s is %.80q; allowed: a duration in whole microseconds, such as 0s, 1.5s, 10m, 36h or 2d", what,
			n.Value)
		return 0
	}
	return days + d
}

func asIs(name string) string { return name }

// table reads names with values.
func (p *parser) table(n *yaml.Node, what string, form func(string) string) map[string]string {
	table := make(map[string]string)
	p.read(n, what, nil, func(key, value *yaml.Node) {
		if value.Kind != yaml.ScalarNode {
			p.wrong(value, "%s.%s must be one value", what, key.Value)
			return
		}
		table[form(key.Value)] = value.Value
	})
	return table
}
