package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
)

// Components are the components of the rule's key, in the words of a file: "client.ip v4/24 v6/64",
// "header.X-User trim lower".
func (r *Rule) Components() []string {
	var list []string
	for i := range r.components {
		list = append(list, r.components[i].String())
	}
	return list
}

// String is the canonical text of the component.
func (c *component) String() string {
	text := c.word()
	if c.source == sourceIP && (c.v4 != defaultV4 || c.v6 != defaultV6) {
		text += fmt.Sprintf(" v4/%d v6/%d", c.v4, c.v6)
	}
	for _, option := range []struct {
		word string
		is   bool
	}{{"trim", c.trim}, {"nfkc", c.nfkc}, {"lower", c.lower}, {"first", c.first}} {
		if option.is {
			text += " " + option.word
		}
	}
	return text
}

// word is the source of the component.
func (c *component) word() string { return strings.TrimSuffix(c.label, "=") }

// Lookup is the key, and its limits, for given values of the key's components. Values are mapped as in
// requests: an address to its network, a text to its normalised form. The error is a *weir.InputError.
func (r *Rule) Lookup(values []string) (key []byte, limits []*weir.Limit, err error) {
	if len(values) != len(r.components) {
		return nil, nil, &weir.InputError{Field: "key", Given: fmt.Sprintf("%d values", len(values)),
			Allowed: fmt.Sprintf("one for each component of the rule %s: %d (%s)", r.name, len(r.components),
				strings.Join(r.Components(), ", "))}
	}
	if len(values) == 0 {
		return []byte(keyOfAll), r.limits, nil
	}
	parts := make([]pattern, len(values))
	for i, text := range values {
		if parts[i], err = r.components[i].one(text); err != nil {
			return nil, nil, err
		}
	}
	key = r.keyOf(parts)
	return key, r.limitsOf(key, parts), nil
}

// limitsOf returns the limits of a key with these values; the limits of a hashed key are not known.
func (r *Rule) limitsOf(key []byte, parts []pattern) []*weir.Limit {
	return r.limitsFor(key, func(w *wildcard) bool { return parts != nil && w.covers(parts) })
}

// IsKey reports whether a text is a key of the rule, as AppendKey makes it.
func (r *Rule) IsKey(text string) bool {
	_, is := r.split(text)
	return is
}

// split returns the values in a key that AppendKey made. A key that is hashed or lacks a component
// has no values.
func (r *Rule) split(text string) (values []string, is bool) {
	if hash, hashed := strings.CutPrefix(text, hashedKey); hashed {
		_, err := hex.DecodeString(hash)
		return nil, err == nil && len(hash) == 2*sha256.Size && len(r.components) > 0
	}
	if len(r.components) == 0 {
		return nil, text == keyOfAll
	}
	whole := true
	for i := range r.components {
		rest, begins := strings.CutPrefix(text, string(r.components[i].begin(nil, i)))
		if !begins {
			return nil, false
		}
		if missing, is := strings.CutPrefix(rest, "-"); is {
			text, whole = missing, false
			continue
		}
		length, value, _ := strings.Cut(rest, ":")
		n, err := strconv.Atoi(length)
		if err != nil || n < 1 || n > len(value) || strconv.Itoa(n) != length {
			return nil, false
		}
		values = append(values, value[:n])
		text = value[n:]
	}
	if !whole {
		values = nil
	}
	return values, text == ""
}

// one reads a value without wildcards.
func (c *component) one(text string) (p pattern, err error) {
	wrong := func(allowed string) error {
		return &weir.InputError{Field: "key", Given: text[:min(len(text), 80)], Allowed: allowed}
	}
	if text == "" || len(text) > bounds.Text {
		return p, wrong(fmt.Sprintf("a value of 1 to %d bytes", bounds.Text))
	}
	if c.source != sourceIP {
		return pattern{text: string(c.normalise([]byte(c.formed(text)), 0))}, nil
	}
	network, allowed := parsePrefix(text)
	if allowed != "" {
		return p, wrong(allowed)
	}
	bits := c.v6
	if network.Addr().Is4() {
		bits = c.v4
	}
	if network.Bits() < bits {
		return p, wrong(fmt.Sprintf("one client, which is a network of /%d or an address in it", bits))
	}
	p.network, _ = network.Addr().Prefix(bits)
	return p, nil
}

// covers is matches for values instead of a request.
func (w *wildcard) covers(parts []pattern) bool {
	for i := range parts {
		p, one := &w.parts[i], &parts[i]
		switch {
		case p.network.IsValid():
			if p.network.Bits() > one.network.Bits() || !p.network.Contains(one.network.Addr()) {
				return false
			}
		case p.wild:
			if !strings.HasPrefix(one.text, p.text) {
				return false
			}
		case p.text != one.text:
			return false
		}
	}
	return true
}

// fixedBy are the values of Rule.fixed.
func (r *Rule) fixedBy(m *Match) (list []string) {
	for i := range r.components {
		var values []string
		switch c := &r.components[i]; c.source {
		case sourceService:
			values = m.Service
		case sourceDescriptor:
			values = m.Descriptor[c.name]
		case sourceEntry:
			if c.segment < len(r.entries) && r.entries[c.segment].plain() {
				e := r.entries[c.segment]
				values = []string{DescriptorEntry(e.key, e.value)}
			}
		}
		if len(values) != 1 || values[0] == "*" {
			continue
		}
		if list == nil {
			list = make([]string, len(r.components))
		}
		list[i] = values[0]
	}
	return list
}

// completed returns the values of a key of which a text is the only value that the rule's match leaves open.
func (r *Rule) completed(text string) (values []string) {
	if len(r.components) == 1 {
		return []string{text}
	}
	values = slices.Clone(r.fixed)
	open := slices.Index(values, "")
	if open < 0 || slices.Contains(values[open+1:], "") {
		return nil
	}
	values[open] = text
	if c := &r.components[open]; !strings.HasPrefix(text, r.entryName(c)) {
		values[open] = r.entryName(c) + text
	}
	return values
}

// shown returns the values in a text such as "edge: a=1, b=2", as people are shown a key with descriptors; nil for
// another text, and for one that is the text of several keys.
func (r *Rule) shown(text string) (values []string) {
	before := r.namesBefore()
	if len(before) == 0 {
		return nil
	}
	rest, ok := strings.CutPrefix(text, before[0])
	for _, name := range before[1:] {
		var value string
		if value, rest, ok = strings.Cut(rest, name); !ok || strings.Contains(rest, name) {
			return nil
		}
		values = append(values, value)
	}
	if !ok {
		return nil
	}
	values = append(values, rest)
	for i := range values {
		values[i] = r.entryName(&r.components[i]) + values[i]
	}
	return values
}

// namesBefore are the texts before the values of a key that people are shown with its names; none if it has no
// descriptors.
func (r *Rule) namesBefore() (list []string) {
	described := false
	for i := range r.components {
		c := &r.components[i]
		described = described || c.describes()
		name := strings.TrimPrefix(c.word(), "descriptor.") + "="
		if c.source == sourceEntry {
			if name = r.entryName(c); name == "" {
				return nil
			}
		}
		switch domain := r.components[0].source == sourceService; {
		case i == 0 && domain:
			name = ""
		case i == 1 && domain:
			name = ": " + name
		case i > 0:
			name = ", " + name
		}
		list = append(list, name)
	}
	if !described {
		return nil
	}
	return list
}

// LookupText is Lookup for one text: a key in the form of AppendKey; one with descriptors as lists show it to people,
// "edge: a=1, b=2"; or a value, if the rule's match leaves open that of one component. The error is a *weir.InputError.
func (r *Rule) LookupText(text string) (key []byte, limits []*weir.Limit, err error) {
	values, is := r.split(text)
	switch {
	case is:
		if key, limits, err = r.Lookup(values); err == nil && string(key) == text {
			return key, limits, nil
		}
		key = []byte(text)
		return key, r.limitsOf(key, nil), nil
	}
	if values = r.shown(text); values == nil {
		values = r.completed(text)
	}
	if values != nil {
		return r.Lookup(values)
	}
	return nil, nil, &weir.InputError{Field: "key", Given: text[:min(len(text), 130)],
		Allowed: fmt.Sprintf("a key of rule %s as bans are listed, or a value for each of its components: %s", r.name,
			strings.Join(r.Components(), ", "))}
}
