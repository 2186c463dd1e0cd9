package rules

import (
	"maps"
	"slices"
	"strings"
)

// A preset sets fields of a rule that has them not set, and returns their text for people. Its word is the value of
// preset.
type preset struct {
	word   string
	expand func(s *Spec) (fields []string)
}

var presets = func() []preset {
	list := []preset{{"mcp", expandMCP}}
	for i := range modelAPIs {
		list = append(list, preset{modelAPIs[i].word, modelAPIs[i].expand})
	}
	return list
}()

// presetWords are the words of preset; "" is none.
var presetWords = func() (words []string) {
	words = append(words, "")
	for i := range presets {
		words = append(words, presets[i].word)
	}
	return words
}()

// Expanded is the rule with the fields that its preset stands for, and with the condition that follows from components
// of messages. It shares memory with s.
func (s *Spec) Expanded() Spec {
	expanded, _ := s.preset()
	if m := &expanded.Match; expanded.readsMCP() && len(m.MCP.Method) == 0 {
		m.MCP.Method = []string{"*"}
	}
	return expanded
}

// preset is the rule with the fields that its preset sets, and their text.
func (s *Spec) preset() (set Spec, fields []string) {
	set = *s
	for i := range presets {
		if presets[i].word == s.Preset {
			fields = presets[i].expand(&set)
		}
	}
	return set, fields
}

// Preset is what the rule's preset stands for: the fields that it sets, as a file has them.
func (r *Rule) Preset() (fields []string) { return r.preset }

// expanded is a file with the expanded rules: the same file if they are as given.
func (file *File) expanded() *File {
	same := func(s Spec) bool { return s.Preset == "" && !s.readsMCP() }
	if !slices.ContainsFunc(file.Rules, func(s Spec) bool { return !same(s) }) {
		return file
	}
	other := *file
	other.Rules = make([]Spec, len(file.Rules))
	for i := range file.Rules {
		other.Rules[i] = file.Rules[i].Expanded()
	}
	return &other
}

// Methods of the Model Context Protocol that the preset limits: of the methods that do work, those that name it.
var (
	callsOfTools = []string{"tools/call"}
	namedCalls   = []string{"tools/call", "prompts/get", "resources/read"}
)

// expandMCP limits the calls of tools or, if the rule does not tell tools apart, all that names its work. Other methods
// are free.
func expandMCP(s *Spec) (fields []string) {
	if m := &s.Match.MCP; len(m.Method) == 0 {
		m.Method = namedCalls
		if s.tellsTools() {
			m.Method = callsOfTools
		}
		fields = append(fields, "match: {mcp: {method: ["+strings.Join(m.Method, ", ")+"]}}")
	}
	if s.Response.Body == "" && s.Response.Shape == "" {
		s.Response.Shape = shapeMCP
		fields = append(fields, "response: {shape: mcp}")
	}
	return fields
}

// An mcpPart is one of the two parts of a message that rules name.
type mcpPart struct {
	source source
	of     func(m *MCP) *[]string
}

var mcpParts = [...]mcpPart{
	{sourceMCPMethod, func(m *MCP) *[]string { return &m.Method }},
	{sourceMCPTool, func(m *MCP) *[]string { return &m.Tool }},
}

// alone is a condition on this part.
func (p *mcpPart) alone(values []string) (m MCP) {
	*p.of(&m) = values
	return m
}

// tellsTools reports whether the rule matches or counts by tools.
func (s *Spec) tellsTools() bool {
	return slices.ContainsFunc(slices.Concat(s.Key, s.Candidate.Key), isOf(sourceMCPTool)) ||
		s.Match.has(func(m *Match) bool { return len(m.MCP.Tool)+len(m.Regex.MCP.Tool) > 0 })
}

// readsMCP reports whether a component of the rule is a part of messages.
func (s *Spec) readsMCP() bool {
	components := slices.Concat(s.Key, s.Candidate.Key, s.Fair.By,
		[]string{s.Cost.By, s.Cost.Learn, s.Once.By, s.Reserve.By, s.Fair.WeightBy},
		slices.Collect(maps.Keys(s.Allow)), slices.Collect(maps.Keys(s.Deny)))
	return slices.ContainsFunc(components, isOf(sourceMCPMethod)) ||
		slices.ContainsFunc(components, isOf(sourceMCPTool))
}

// isOf returns a function that reports whether the text of a component has the source.
func isOf(of source) func(text string) bool {
	return func(text string) bool {
		words := strings.Fields(text)
		return len(words) > 0 && words[0] == sources[of].word
	}
}

// asksMCP reports whether the match has a condition on messages.
func (m *Match) asksMCP() bool {
	return m.has(func(m *Match) bool {
		return len(m.MCP.Method)+len(m.MCP.Tool)+len(m.Regex.MCP.Method)+len(m.Regex.MCP.Tool) > 0
	})
}

// has reports whether the match or one of its alternatives is such a match.
func (m *Match) has(such func(*Match) bool) bool {
	return such(m) || slices.ContainsFunc(slices.Concat(m.Any, m.Not), func(one Match) bool { return such(&one) })
}

// placed notes where the messages of a rule are sent. Each rule about messages must say it.
func (b *builder) placed(i int, s *Spec, rule *Rule) {
	m := &s.Match
	if !m.asksMCP() {
		return
	}
	if m.Path == "" && len(m.Host)+len(m.Service)+len(m.Route) == 0 {
		b.add(at(i, "match"), "match says nothing of the place of the MCP server: name its path, host, service or "+
			"route, because other requests there are refused, such as match: {path: /mcp}")
	}
	if rule.disabled || len(b.problems) > 0 {
		return
	}
	if b.set.messages == nil {
		b.set.messages = newSet()
		b.set.messages.form = b.set.form
	}
	var conditions []condition
	for _, c := range []condition{{kind: sourceService, values: m.Service}, {kind: sourceRoute, values: m.Route}} {
		if len(c.values) > 0 {
			c.values = slices.DeleteFunc(slices.Clone(c.values), func(value string) bool { return value == "*" })
			conditions = append(conditions, c)
		}
	}
	place, hosts := &Rule{set: b.set.messages, index: i}, make([]string, len(m.Host))
	for j, host := range m.Host {
		hosts[j] = strings.ToLower(host)
	}
	if path := b.set.inForm(m.Path); b.room(at(i, "match"), hosts, path, conditions) {
		tree := treeBuilder{set: b.set.messages}
		tree.insert(place, hosts, path, conditions)
	}
}
