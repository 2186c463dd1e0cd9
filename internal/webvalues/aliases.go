package webvalues

import (
	"net/textproto"
	"net/url"
	"strings"
)

// aliasedQuery reports whether a parameter with another name is the given one to some service, with another value. PHP
// drops blanks before a name, ends it at a NUL, and reads dots, blanks and an open bracket as underscores; it and
// Express read name[] as a list; ASP.NET reads names without case.
func (a *Request) aliasedQuery(name, value string, known bool) bool {
	for rest := a.RawQuery; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		key, text, _ := strings.Cut(pair, "=")
		if key == name || strings.IndexByte(key, '%') < 0 && len(key) < len(name) {
			continue
		}
		if plain, err := url.QueryUnescape(key); err != nil || plain == name || !isAlias(plain, name) {
			continue
		}
		if plain, err := url.QueryUnescape(text); err != nil || !known || plain != value {
			return true
		}
	}
	return false
}

// isAlias reports whether some service reads a name as another one.
func isAlias(text, name string) bool {
	text = strings.TrimLeft(text, " ")
	text, _, _ = strings.Cut(text, "\x00")
	if folded(text, name) {
		return true
	}
	text, _, list := strings.Cut(text, "[")
	return list && folded(text, name)
}

// folded compares names without case, with dots, blanks and brackets as underscores.
func folded(text, name string) bool {
	return len(text) == len(name) && strings.EqualFold(underscored(text), underscored(name))
}

func underscored(name string) string {
	if !strings.ContainsAny(name, ". [") {
		return name
	}
	return strings.NewReplacer(".", "_", " ", "_", "[", "_").Replace(name)
}

// aliasedCookie reports whether some service reads the cookie otherwise, or another part of the field as the cookie.
// Python's http.cookies ends a value at a blank or a comma, and reads what follows as the next cookie. PHP reads names
// like those of parameters, but with case.
func (a *Request) aliasedCookie(name, value string, known bool) bool {
	for _, line := range a.lines("Cookie") {
		for rest := line; rest != ""; {
			var part string
			part, rest, _ = strings.Cut(rest, ";")
			key, text, _ := strings.Cut(textproto.TrimString(part), "=")
			key, text = textproto.TrimString(key), textproto.TrimString(text)
			if key == name && strings.ContainsAny(text, " \t,") || hidden(text, name) {
				return true
			}
			if key == name || len(key) != len(name) || underscored(key) != underscored(name) {
				continue
			}
			if plain, readable := cookieValue(text); !readable || !known || plain != value {
				return true
			}
		}
	}
	return false
}

// hidden reports whether a value contains a cookie of the name, after a byte that ends a value for some service.
func hidden(text, name string) bool {
	for {
		_, after, found := strings.Cut(text, name)
		if !found {
			return false
		}
		before := text[:len(text)-len(after)-len(name)]
		ends := before != "" && strings.IndexByte(" \t,\"", before[len(before)-1]) >= 0
		if ends && strings.HasPrefix(strings.TrimLeft(after, " \t"), "=") {
			return true
		}
		text = after
	}
}
