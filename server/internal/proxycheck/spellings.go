package proxycheck

import (
	"fmt"
	"strings"
)

// spell adds requests with a key that is another one for a reader that follows the RFCs, and the same for some service.
// Each could be counted under a value that the client chooses.
func (b *builder) spell(key string) {
	kind, name, _ := strings.Cut(key, ".")
	switch kind {
	case "cookie":
		b.spellCookie(name)
	case "query":
		b.spellQuery(name)
	case "header":
		b.spellHeader(name)
	}
}

func (b *builder) spellCookie(name string) {
	others := b.request
	value := find(strings.Split(others.take("Cookie"), ";"), name)
	spell := func(reader, text string) {
		line := "Cookie: " + text
		bytes := others.head(b.method+" "+b.target()+" HTTP/1.1", "Host: "+b.host, line)
		b.spelling("cookie", reader, text, bytes)
	}
	for _, spelled := range []struct{ text, reader string }{
		{"%[1]s=%[2]s y=1", "Python's http.cookies ends a value at a blank"},
		{"%[1]s=%[2]s,y=1", "Python's http.cookies ends a value at a comma"},
		{`%[1]s="%[2]s"`, "most services remove quotes"},
		{`%[1]s="%[2]s\054y"`, "Python and Django read escapes in quotes"},
		{"%[1]s=x; %[1]s=%[2]s", "some services take the last one"},
		{"%[1]s=%[2]s; %[1]s=x", "some services take the first one"},
		{" %[1]s =%[2]s", "some services remove blanks"},
		{"%[1]s=%[2]s\t", "some services remove blanks"},
		{"$Version=1; %[1]s=%[2]s; $Path=/", "RFC 2109"},
	} {
		spell(spelled.reader, fmt.Sprintf(spelled.text, name, value))
	}
	spell("Express and PHP decode escapes", name+"="+escape(value))
	if i := strings.IndexByte(name, '_'); i >= 0 {
		spell("PHP reads a dot as an underscore", name+"=x; "+name[:i]+"."+name[i+1:]+"="+value)
	}
}

func (b *builder) spellQuery(name string) {
	var rest []string
	for _, pair := range strings.Split(b.query, "&") {
		if key, _, _ := strings.Cut(pair, "="); key != name && pair != "" {
			rest = append(rest, pair)
		}
	}
	value := find(strings.Split(b.query, "&"), name)
	for _, spelled := range []struct{ text, reader string }{
		{"%[1]s=x&+%[1]s=%[2]s", "PHP drops blanks before a name"},
		{"%[1]s=x&%%20%[1]s=%[2]s", "PHP drops blanks before a name"},
		{"%[1]s=x&%[1]s%%00=%[2]s", "PHP ends a name at a NUL"},
		{"%[1]s=x&%[1]s%%00y=%[2]s", "PHP ends a name at a NUL"},
		{"%[1]s=x&%[1]s[=%[2]s", "PHP reads an open bracket as an underscore"},
		{"%[1]s=x&%[1]s=%[2]s", "PHP takes the last one"},
		{"%[1]s=%[2]s&%[1]s=x", "Java takes the first one, ASP.NET both"},
		{"x=1;%[1]s=%[2]s", "some services split at a semicolon"},
		{"%[1]s=x;%[1]s=%[2]s", "some services split at a semicolon"},
		{"%[1]s=%%zz&%[1]s=%[2]s", "some services read invalid escapes"},
		{"%[1]s=x&%[3]s=%[2]s", "ASP.NET reads names without case"},
		{"%[1]s[]=%[2]s", "PHP and Rails read brackets as a list"},
		{"%[1]s=%[2]s%%00", "some services end a value at a NUL"},
		{"%[1]s=x&%[4]s=%[2]s", "every service reads escapes in names"},
		{"%[1]s=%[2]s+", "some services remove blanks; write trim after the component"},
	} {
		text := fmt.Sprintf(spelled.text, name, value, upper(name), escape(name))
		b.spellAs(rest, spelled.reader, text)
	}
	if i := strings.IndexByte(name, '_'); i >= 0 {
		for _, c := range []string{".", "+", "%20", "["} {
			b.spellAs(rest, "PHP reads dots, blanks and brackets as underscores",
				name+"=x&"+name[:i]+c+name[i+1:]+"="+value)
		}
	}
}

func (b *builder) spellAs(rest []string, reader, query string) {
	query = strings.Join(append(rest[:len(rest):len(rest)], query), "&")
	b.spelling("query", reader, query, b.head(b.method+" "+b.path+"?"+query+" HTTP/1.1", "Host: "+b.host))
}

func (b *builder) spellHeader(name string) {
	others := b.request
	value := others.take(name)
	for _, spelled := range []struct{ text, reader string }{
		{"%[3]s: %[2]s", "names have no case"},
		{"%[1]s:%[2]s", "blanks are optional"},
		{"%[1]s:\t%[2]s \t", "blanks are no part of a value"},
		{"%[1]s: x\r\n%[1]s: %[2]s", "some services take the last line"},
		{"%[1]s: %[2]s\r\n%[1]s: x", "some services take the first line"},
		{"%[1]s: x\r\n%[4]s: %[2]s", "CGI and WSGI read an underscore as a hyphen"},
		{"%[1]s: x\r\n%[1]s : %[2]s", "some services remove blanks"},
		{"%[1]s: %[2]s\r\n ", "some services join lines"},
	} {
		text := fmt.Sprintf(spelled.text, name, value, strings.ToUpper(name), strings.ReplaceAll(name, "-", "_"))
		bytes := others.head(b.method+" "+b.target()+" HTTP/1.1", "Host: "+b.host, text)
		b.spelling("header", spelled.reader, text, bytes)
	}
}

func (b *builder) spelling(kind, reader, text, bytes string) {
	b.add(fmt.Sprintf("%s %.60q (%s)", kind, text, reader), bytes)
}

// find is the value of a pair; "" if there is no such pair.
func find(pairs []string, name string) string {
	for _, pair := range pairs {
		if key, value, _ := strings.Cut(strings.TrimSpace(pair), "="); key == name {
			return value
		}
	}
	return ""
}

// upper is a name in the other case.
func upper(name string) string {
	if name == strings.ToUpper(name) {
		return strings.ToLower(name)
	}
	return strings.ToUpper(name)
}

// escape escapes every byte.
func escape(text string) (escaped string) {
	for _, c := range []byte(text) {
		escaped += fmt.Sprintf("%%%02X", c)
	}
	return escaped
}
