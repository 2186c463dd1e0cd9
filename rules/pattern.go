package rules

import (
	"net/netip"
	"strings"
)

// A pattern stands for one value, or for all values that begin with its text or are in its network.
type pattern struct {
	text    string
	network netip.Prefix // of client.ip
	wild    bool
}

// any reports whether the pattern stands for every value.
func (p *pattern) any() bool { return p.wild && p.text == "" && !p.network.IsValid() }

var escaping = strings.NewReplacer(`\`, `\\`, `*`, `\*`)

// String is one text for each pattern.
func (p *pattern) String() string {
	if p.network.IsValid() {
		return p.network.String()
	}
	text := escaping.Replace(p.text)
	if p.wild {
		text += "*"
	}
	return text
}

// rank is the number of bits of a value that the pattern fixes.
func (p *pattern) rank() int {
	if p.network.IsValid() {
		return p.network.Bits()
	}
	return 8 * len(p.text)
}

// parsePattern reads a value of a list or an override: a final * stands for any suffix; \* is a star, \\ a
// backslash, and any other backslash is itself.
func parsePattern(text string) (p pattern, complaint string) {
	var literal strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '*' && i == len(text)-1:
			p.wild = true
			continue
		case text[i] == '*':
			return p, `a * stands for what follows only at the end; write \* for a star`
		case text[i] == '\\' && i+1 < len(text) && (text[i+1] == '*' || text[i+1] == '\\'):
			i++
		}
		literal.WriteByte(text[i])
	}
	p.text = literal.String()
	return p, ""
}

// parsePatternOf reads a value of a component: for client.ip an address or a network.
func parsePatternOf(c *component, text string) (p pattern, complaint string) {
	if c.source != sourceIP || text == "*" {
		if p, complaint = parsePattern(text); complaint == "" {
			complaint = c.misplaced(&p)
		}
		p.text = c.formed(p.text)
		return p, complaint
	}
	p.network, complaint = parsePrefix(text)
	if complaint != "" {
		return p, "allowed: " + complaint + `; or "*" for any`
	}
	return p, ""
}

// formed brings a text into the form of the component's values, before normalisation.
func (c *component) formed(text string) string {
	switch {
	case c.source == sourceMethod:
		return folded(text)
	case c.foldCase:
		return string(appendFolded(nil, text))
	}
	return text
}

// inForm applies the form of paths to the component's values.
func (c *component) inForm(s *Set) { c.foldCase = c.source == sourcePath && s.form.IgnoreCase }
