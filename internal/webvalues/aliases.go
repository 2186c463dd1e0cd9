package webvalues

import (
	"net/textproto"
	"net/url"
	"strings"

	"github.com/weirproject/weir/internal/servicekind"
)

// aliasedQuery reports whether a parameter with another name is the given one to the service, with another value. PHP
// drops blanks before a name, ends it at a NUL, and reads dots, blanks and an open bracket as underscores; it and
// Express read name[] as a list; ASP.NET reads names without case.
func (a *Request) aliasedQuery(k aliases, name, value string, known bool) bool {
	for rest := a.RawQuery; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		key, text, _ := strings.Cut(pair, "=")
		if key == name || strings.IndexByte(key, '%') < 0 && len(key) < len(name) {
			continue
		}
		if plain, err := url.QueryUnescape(key); err != nil || plain == name || !k.isAlias(plain, name) {
			continue
		}
		if plain, err := url.QueryUnescape(text); err != nil || !known || plain != value {
			return true
		}
	}
	return false
}

// aliases is how a service reads names and cookies.
type aliases servicekind.Kind

func kindOf(name string) aliases { return aliases(servicekind.Of(name)) }

// isAlias reports whether the service reads the name of a parameter as another one.
func (k aliases) isAlias(text, name string) bool {
	if k.Underscores {
		text = strings.TrimLeft(text, " ")
		text, _, _ = strings.Cut(text, "\x00")
	}
	if k.equal(text, name) {
		return true
	}
	text, _, list := strings.Cut(text, "[")
	return k.Lists && list && k.equal(text, name)
}

// equal compares names as the service does.
func (k aliases) equal(text, name string) bool {
	if len(text) != len(name) {
		return false
	}
	if k.Underscores {
		text, name = underscored(text), underscored(name)
	}
	return text == name || k.Folds && strings.EqualFold(text, name)
}

func underscored(name string) string {
	if !strings.ContainsAny(name, ". [") {
		return name
	}
	return strings.NewReplacer(".", "_", " ", "_", "[", "_").Replace(name)
}

// aliasedCookie reports whether the service reads the cookie otherwise, or another part of the field as the cookie.
// Python's http.cookies ends a value at a blank or a comma, and reads what follows as the next cookie. PHP and ASP.NET
// read names like names of parameters.
func (a *Request) aliasedCookie(k aliases, name, value string, known bool) bool {
	for _, line := range a.lines("Cookie") {
		for rest := line; rest != ""; {
			var part string
			part, rest, _ = strings.Cut(rest, ";")
			key, text, _ := strings.Cut(textproto.TrimString(part), "=")
			key, text = textproto.TrimString(key), textproto.TrimString(text)
			if k.Splits && (key == name && strings.ContainsAny(text, " \t,") || hidden(text, name)) {
				return true
			}
			if key == name || !k.equal(key, name) {
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
