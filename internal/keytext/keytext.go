// Package keytext reads the keys that rules make, for people.
package keytext

import (
	"strconv"
	"strings"
)

// A part is a component of a key with its value; "-" for a missing one.
type part struct{ name, value string }

const (
	service    = "service"
	descriptor = "descriptor."
	entry      = "entry." // its value has the name
)

// parts are the components of a key as rules make it; nil for another text.
func parts(key string) (list []part) {
	for rest := key; rest != ""; {
		name, after, named := strings.Cut(rest, "=")
		if missing, is := strings.CutPrefix(after, "-"); named && is {
			list = append(list, part{name, "-"})
			rest = strings.TrimPrefix(missing, " ")
			continue
		}
		value, after, ok := measured(after)
		if !ok || value == "" {
			return nil
		}
		list = append(list, part{name, value})
		rest = strings.TrimPrefix(after, " ")
	}
	return list
}

// measured reads a value after its length: 2:42.
func measured(text string) (value, rest string, ok bool) {
	length, value, found := strings.Cut(text, ":")
	n, err := strconv.Atoi(length)
	if !found || err != nil || n < 0 || n > len(value) {
		return "", "", false
	}
	return value[:n], value[n:], true
}

// Values are the values in a key as rules make it: "203.0.113.7" and "ann" of
// "client.ip=11:203.0.113.7 user=3:ann"; "-" for a missing one. It returns nil for another text.
func Values(key string) (values []string) {
	for _, p := range parts(key) {
		values = append(values, p.value)
	}
	return values
}

// Has reports whether a value is one in a key as rules make it. Of an entry of a descriptor the value is what follows
// the name, or all of it.
func Has(key, value string) bool {
	for _, p := range parts(key) {
		if p.value == value {
			return true
		}
		if _, own, named := strings.Cut(p.value, "="); named && own == value && strings.HasPrefix(p.name, entry) {
			return true
		}
	}
	return false
}

// Plain is a key without its lengths: "edge: a=1, b=2" of "service=4:edge descriptor.a=1:1 descriptor.b=1:2", or of
// entries "service=4:edge entry.1=3:a=1 entry.2=3:b=2", and of a key without descriptors the values alone:
// "203.0.113.7 ann" of "client.ip=11:203.0.113.7 user=3:ann". A text that is no key, or is hashed, stays as it is. The
// result is not unique: two keys may have one text.
func Plain(key string) string {
	if text := described(key); text != "" {
		return text
	}
	if values := Values(key); values != nil {
		return strings.Join(values, " ")
	}
	return key
}

// Described is a key for a place without the names of its components: as Plain if it has descriptors, else with the
// names and lengths of the key itself.
func Described(key string) string {
	if text := described(key); text != "" {
		return text
	}
	return key
}

// described is a key with descriptors, or of a limit that Envoy sends; "" for another one.
func described(key string) string {
	if text := sent(key); text != "" {
		return text
	}
	domain, isDescriptor := "", false
	var list []string
	for i, p := range parts(key) {
		name, is := strings.CutPrefix(p.name, descriptor)
		whole := strings.HasPrefix(p.name, entry)
		isDescriptor = isDescriptor || is || whole
		switch {
		case i == 0 && p.name == service:
			domain = p.value + ": "
		case whole:
			list = append(list, p.value)
		default:
			list = append(list, name+"="+p.value)
		}
	}
	if !isDescriptor {
		return ""
	}
	return domain + strings.Join(list, ", ")
}

// sent is the text for the key of a limit that a descriptor of Envoy brought along, which is no rule's: the domain, and
// then each name and value, all with their lengths.
func sent(key string) string {
	rest, is := strings.CutPrefix(key, "envoy ")
	if !is {
		return ""
	}
	var texts []string
	for rest != "" && rest[0] != ' ' { // after a blank, the window
		text, after, ok := measured(rest)
		if !ok {
			return ""
		}
		texts, rest = append(texts, text), after
	}
	if len(texts)%2 == 0 {
		return ""
	}
	var list []string
	for i := 1; i < len(texts); i += 2 {
		list = append(list, texts[i]+"="+texts[i+1])
	}
	return texts[0] + ": " + strings.Join(list, ", ")
}
