package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/internal/bounds"
)

// An entry is a condition on one entry of a descriptor: key, or key=value. Each * in them stands for any text.
type entry struct{ key, value string } // value "": any value

// inKeys escapes the sign that separates key and value.
var inKeys, fromKeys = strings.NewReplacer("%", "%25", "=", "%3D"), strings.NewReplacer("%25", "%", "%3D", "=")

// DescriptorEntry is the text of Match.DescriptorKeys for a key with a value; "" is any value.
func DescriptorEntry(key, value string) string {
	if value == "" {
		return inKeys.Replace(key)
	}
	return inKeys.Replace(key) + "=" + value
}

// entryOf reads a text of DescriptorEntry, and reports whether it is one.
func entryOf(text string) (e entry, ok bool) {
	key, value, separated := strings.Cut(text, "=")
	return entry{fromKeys.Replace(key), value}, key != "" && (value != "" || !separated) && len(text) <= bounds.Text
}

// descriptorKeys adds the condition on all entries of the descriptor.
func (b *builder) descriptorKeys(list []condition, p place, texts []string) []condition {
	if len(texts) == 0 || !b.count(p, len(texts), bounds.Values) {
		return list
	}
	c := condition{kind: sourceDescriptorKeys}
	for j, text := range texts {
		item := place{p.rule, p.field, j}
		if text == "" && b.has(item) {
			continue
		}
		e, ok := entryOf(text)
		if !ok {
			b.add(item, "%s %.80q; allowed: a key, or key=value, of 1 to %d bytes, in which each * stands for any text",
				p.field, text, bounds.Text)
		}
		c.entries = append(c.entries, e)
	}
	return append(list, c)
}

// plainKeys checks the descriptor_keys of an alternative of any or not. Entries of alternatives are keys alone: by a
// value the rules of other alternatives would not be met, which is no meaning of any and not.
func (b *builder) plainKeys(p place, texts []string) {
	for j, text := range texts {
		if strings.ContainsAny(text, "=*") {
			b.add(place{p.rule, p.field, j}, "%s %.80q: keys alone are allowed here; write values into the match "+
				"itself", p.field, text)
		}
	}
}

// A descriptorNode is a node of the tree of descriptors. The walk of a descriptor goes from the root to the next node
// by each of its entries, and never back: so what it costs does not depend on the number of rules.
type descriptorNode struct {
	here     *branch                   // of the descriptors that end here; nil: none
	exact    map[entry]*descriptorNode // by key and value, or by the key alone
	patterns entryPatterns
}

// find is the branch of a request's descriptor, or nil.
func (n *descriptorNode) find(r *Request) (found *branch, visited int) {
	for i, key := range r.DescriptorKeys {
		if n = n.next(key, r.descriptorValue(i)); n == nil {
			return nil, i
		}
	}
	return n.here, len(r.DescriptorKeys)
}

// next is the node of the entry's value, else of the first pattern that fits, else of its key.
func (n *descriptorNode) next(key, value string) *descriptorNode {
	if value != "" {
		if next := n.exact[entry{key, value}]; next != nil {
			return next
		}
	}
	if next := n.patterns.find(key, value); next != nil {
		return next
	}
	return n.exact[entry{key: key}]
}

// at is the branch of the descriptors with these entries, created if missing.
func (n *descriptorNode) at(entries []entry) *branch {
	for _, e := range entries {
		n = n.child(e)
	}
	return made(&n.here)
}

func (n *descriptorNode) child(e entry) *descriptorNode {
	if n.exact == nil {
		n.exact = make(map[entry]*descriptorNode)
	}
	next := n.exact[e]
	if next == nil {
		next = new(descriptorNode)
		n.exact[e] = next // of a pattern too, which a later rule may have again
		if strings.Contains(e.key+e.value, "*") {
			n.patterns.add(e, next)
		}
	}
	return next
}

// entryPatterns are the entries with wildcards at a node. They are found by the texts before the first wildcard.
type entryPatterns struct {
	count    int
	lengths  []int // of the values' texts before the first wildcard, ascending
	byPrefix map[entry][]entryPattern
	ofKeys   []entryPattern // of keys with wildcards
}

// An entryPattern is an entry with wildcards.
type entryPattern struct {
	key, value []string // the texts between the wildcards; of value nil: any value
	order      int      // of the first rules with the patterns of a node
	next       *descriptorNode
}

func (p *entryPatterns) add(e entry, next *descriptorNode) {
	pattern := entryPattern{key: strings.Split(e.key, "*"), order: p.count, next: next}
	p.count++
	if e.value != "" {
		pattern.value = strings.Split(e.value, "*")
	}
	if len(pattern.key) > 1 {
		p.ofKeys = append(p.ofKeys, pattern)
		return
	}
	prefix := pattern.value[0]
	if at, known := slices.BinarySearch(p.lengths, len(prefix)); !known {
		p.lengths = slices.Insert(p.lengths, at, len(prefix))
	}
	if p.byPrefix == nil {
		p.byPrefix = make(map[entry][]entryPattern)
	}
	p.byPrefix[entry{e.key, prefix}] = append(p.byPrefix[entry{e.key, prefix}], pattern)
}

// find is the node of the first pattern that fits, or nil.
func (p *entryPatterns) find(key, value string) *descriptorNode {
	best := firstOf(p.ofKeys, key, value, nil)
	for _, n := range p.lengths {
		if n > len(value) {
			break
		}
		best = firstOf(p.byPrefix[entry{key, value[:n]}], key, value, best)
	}
	if best == nil {
		return nil
	}
	return best.next
}

// firstOf is the first pattern that fits, if it is before best.
func firstOf(list []entryPattern, key, value string, best *entryPattern) *entryPattern {
	for i := range list {
		p := &list[i]
		if best != nil && best.order < p.order {
			break
		}
		if fits(p.key, key) && (p.value == nil || fits(p.value, value)) {
			return p
		}
	}
	return best
}

// fits reports whether a text consists of the parts, with any text between one part and the next.
func fits(parts []string, text string) bool {
	last := len(parts) - 1
	rest, begins := strings.CutPrefix(text, parts[0])
	if last == 0 {
		return begins && rest == ""
	}
	for _, part := range parts[1:last] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return begins && strings.HasSuffix(rest, parts[last])
}

// descriptorValue is the value of an entry of the request's descriptor.
func (r *Request) descriptorValue(i int) string {
	if i < len(r.DescriptorValues) {
		return r.DescriptorValues[i]
	}
	if r.Attributes == nil {
		return ""
	}
	return r.Attributes.Descriptor(r.DescriptorKeys[i])
}

// appendEntry appends an entry of the descriptor as key=value; nothing if there are fewer.
func (r *Request) appendEntry(dst []byte, i int) []byte {
	if i >= len(r.DescriptorKeys) {
		return dst
	}
	if key := r.DescriptorKeys[i]; strings.ContainsAny(key, "%=") {
		dst = append(dst, inKeys.Replace(key)...)
	} else {
		dst = append(dst, key...)
	}
	dst = append(dst, '=')
	return append(dst, r.descriptorValue(i)...)
}

// entries are the entries of the request's descriptor, for people.
func (r *Request) entries() string {
	var text []byte
	for i := range r.DescriptorKeys {
		if i > 0 {
			text = append(text, betweenEntries...)
		}
		text = r.appendEntry(text, i)
	}
	return string(text)
}

// entryNumber reads the number of an entry, as a component of a key has it.
func entryNumber(name string) (index int, complaint string) {
	n, err := strconv.Atoi(name)
	if err != nil || n < 1 || n > bounds.Values || strconv.Itoa(n) != name {
		return 0, fmt.Sprintf("the number of an entry of the descriptor, 1 to %d, must follow entry.", bounds.Values)
	}
	return n - 1, ""
}

// describes reports whether the value comes from the descriptor.
func (c component) describes() bool { return c.source == sourceDescriptor || c.source == sourceEntry }

func entriesOf(texts []string) (list []entry) {
	for _, text := range texts {
		e, _ := entryOf(text)
		list = append(list, e)
	}
	return list
}

// plain reports whether one key with one value meets the condition.
func (e entry) plain() bool { return e.value != "" && !strings.Contains(e.key+e.value, "*") }

// entryName is what the values of an entry in keys begin with, such as "user="; "" of any other component, and where
// the rule's match does not name the entry's key.
func (r *Rule) entryName(c *component) string {
	if c.source != sourceEntry || c.segment >= len(r.entries) || strings.Contains(r.entries[c.segment].key, "*") {
		return ""
	}
	return inKeys.Replace(r.entries[c.segment].key) + "="
}

// betweenEntries separates the entries of an example.
const betweenEntries = ", "

// examples adds a descriptor for each node that has rules, as text: that of the nodes before it is path.
func (n *descriptorNode) examples(path string, into map[string]bool) {
	if n.here != nil {
		into[path] = true
	}
	for e, next := range n.exact {
		some := func(text string) string { return strings.ReplaceAll(text, "*", "any") }
		text := DescriptorEntry(some(e.key), cmp.Or(some(e.value), "any"))
		if path != "" {
			text = path + betweenEntries + text
		}
		next.examples(text, into)
	}
}

// entriesIn reads the entries of an example.
func entriesIn(text string) (keys, values []string) {
	for _, e := range entriesOf(strings.Split(text, betweenEntries)) {
		keys, values = append(keys, e.key), append(values, e.value)
	}
	return keys, values
}
