package accesslog

import (
	"errors"
	"fmt"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
)

// A template is the shape of a line of text: values between literals.
type template struct {
	name   string // of the format
	prefix string
	tokens []token
	escape escape
	open   bool // more may follow
	isHTTP bool
}

// A token is a value and the literal after it.
type token struct {
	field   field
	name    string // of a header field, or of a value that is read past
	until   string // "" is the end of the line
	keep    bool   // until belongs to the next value: a path begins with its /
	quoted  bool   // the value may have until in it, escaped by a backslash
	list    bool   // the value may be a list with spaces: 192.0.2.1, 192.0.2.2
	missing error
}

var (
	errBegin = errors.New("the line does not begin as the format does")
	errEnd   = errors.New("there is more than the format has")
)

// A variable is the meaning of a name in a template.
type variable struct {
	field  field
	header string // the name of a header field
	rank   int    // of two variables for the same field, a template's higher one is read
	list   bool
}

// A piece is a variable of a template and the literal after it.
type piece struct {
	variable
	label, literal string
}

// compile compiles a format of nginx, which has variables with $, or of Apache, which has directives with %.
func compile(text string) (*template, error) {
	if !strings.Contains(text, "$") {
		return apacheTemplate(text)
	}
	text, esc, err := nginxText(text)
	if err != nil {
		return nil, err
	}
	// The three together are the target as it was sent, but for its escapes.
	text = strings.ReplaceAll(text, "$uri$is_args$args", "$uri_and_args")
	prefix, pieces := split(text, nginxName, nginxVariable)
	return newTemplate("nginx", prefix, pieces, esc)
}

var (
	nginxName  = regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`)
	nginxHead  = regexp.MustCompile(`^log_format\s+\S+\s+`)
	nginxPiece = regexp.MustCompile(`^(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s'"]\S*))(?:\s+|$)`)
	unquoted   = strings.NewReplacer(`\'`, "'", `\"`, `"`, `\\`, `\`, `\t`, "\t", `\r`, "\r", `\n`, "\n")
)

// nginxText takes a log_format directive, its pieces in quotes, or the format alone.
func nginxText(text string) (format string, esc escape, err error) {
	head := nginxHead.FindString(text)
	text, esc = strings.TrimSuffix(text[len(head):], ";"), backslash
	if rest, found := strings.CutPrefix(text, "escape="); found {
		kind, after, _ := strings.Cut(rest, " ")
		known := false
		if esc, known = escapes[kind]; !known {
			return "", esc, fmt.Errorf("escape=%s: allowed are default, json and none", kind)
		}
		text = strings.TrimLeft(after, " \t\r\n")
	}
	if head == "" && !strings.HasPrefix(text, "'") {
		return text, esc, nil
	}
	for text != "" {
		found := nginxPiece.FindStringSubmatch(text)
		if found == nil {
			return "", esc, fmt.Errorf("%.80s: a quote is not closed, or a space is missing after it", text)
		}
		text = text[len(found[0]):]
		format += unquoted.Replace(found[1]+found[2]) + found[3]
	}
	return format, esc, nil
}

func nginxVariable(match string) variable {
	name := strings.Trim(match, "${}")
	if v, known := nginxVariables[name]; known {
		return v
	}
	if v, known := names[name]; known && v.field != headers {
		return v
	}
	if name, found := strings.CutPrefix(name, "http_"); found {
		return headerVariable(strings.ReplaceAll(name, "_", "-"))
	}
	return variable{list: strings.HasPrefix(name, "upstream_")}
}

func headerVariable(name string) variable {
	name = textproto.CanonicalMIMEHeaderKey(name)
	return variable{field: header, header: name, list: name == "X-Forwarded-For"}
}

// pathAndQuery stands for %U%q, the path and ?query, which need no text between them.
const pathAndQuery = "{target}U"

var (
	apacheName = regexp.MustCompile(`%[!<>,\d]*(\{[^}]*\})?(\^\w\w|[A-Za-z])`)
	// %t writes brackets itself.
	apacheText = strings.NewReplacer(`\"`, `"`, `\t`, "\t", `\\`, `\`, "%%", "\x00", "%t", "[%t]", "%U%q",
		"%"+pathAndQuery)
)

// apacheTemplate compiles the format of a LogFormat directive, in quotes or not.
func apacheTemplate(text string) (*template, error) {
	if inside, found := strings.CutPrefix(text, `"`); found && strings.Contains(text, `\"`) {
		text = inside[:max(0, strings.LastIndexByte(inside, '"'))] // a nickname may follow
	}
	prefix, pieces := split(apacheText.Replace(text), apacheName, apacheVariable)
	for i := -1; i < len(pieces); i++ {
		literal := &prefix
		if i >= 0 {
			literal = &pieces[i].literal
		}
		if strings.Contains(*literal, "%") {
			return nil, fmt.Errorf("%.80s: a directive has no letter, or a brace is not closed", *literal)
		}
		*literal = strings.ReplaceAll(*literal, "\x00", "%")
	}
	return newTemplate("apache", prefix, pieces, backslash)
}

// apacheVariable takes >s, {Referer}i or !200,304{Referer}i; it is s, {Referer}i.
func apacheVariable(match string) variable {
	directive := strings.TrimLeft(match, "%!<>,0123456789")
	if v, known := apacheDirectives[directive]; known {
		return v
	}
	name, found := strings.CutSuffix(directive, "}i")
	if !found {
		return variable{}
	}
	v := headerVariable(strings.TrimPrefix(name, "{"))
	if known, agent := apacheDirectives[v.header]; agent {
		return known
	}
	return v
}

// split takes a template apart: the literal before the first name, and names with the literals after them.
func split(text string, name *regexp.Regexp, look func(match string) variable) (prefix string, pieces []piece) {
	at := name.FindAllStringIndex(text, -1)
	if len(at) == 0 {
		return text, nil
	}
	for i, place := range at {
		next := len(text)
		if i+1 < len(at) {
			next = at[i+1][0]
		}
		match := text[place[0]:place[1]]
		pieces = append(pieces, piece{look(match), match, text[place[1]:next]})
	}
	return text[:at[0][0]], pieces
}

// newTemplate compiles a template that begins with a literal.
func newTemplate(name, prefix string, pieces []piece, esc escape) (*template, error) {
	t := &template{name: name, prefix: prefix, escape: esc}
	best := make(map[field]int)
	for _, p := range pieces {
		best[p.field] = max(best[p.field], p.rank)
	}
	for i, p := range pieces {
		k := token{field: p.field, name: p.header, until: p.literal, list: p.list}
		if p.field != header && p.rank < best[p.field] {
			k.field = skip
		}
		k.quoted = esc.sign == '\\' && strings.HasPrefix(k.until, `"`)
		if k.until == "" && i+1 < len(pieces) {
			if next := pieces[i+1]; next.field != target && next.field != path {
				return nil, fmt.Errorf("nothing separates %s from %s", p.label, next.label)
			}
			k.until, k.keep = "/", true
		}
		k.missing = fmt.Errorf("%s is not followed by %q", p.label, k.until)
		t.tokens = append(t.tokens, k)
	}
	if !t.has(start, end) {
		return nil, errors.New("the format has no time of the request")
	}
	t.isHTTP = t.has(request, target, path)
	return t, nil
}

func (t *template) has(fields ...field) bool {
	return slices.ContainsFunc(t.tokens, func(k token) bool { return slices.Contains(fields, k.field) })
}

// format is the template as a format; its time is the start if the template has that or the duration.
func (t *template) format(otherwise TimeIs) format {
	if slices.ContainsFunc(t.tokens, func(k token) bool { return startsKnown(k.field) }) {
		otherwise = Start
	}
	return format{name: t.name, timeIs: otherwise, read: t.read}
}

func (t *template) read(line string, d *draft) error {
	rest, found := strings.CutPrefix(line, t.prefix)
	if !found {
		return errBegin
	}
	d.isHTTP = t.isHTTP
	var notHTTP error
	for i := range t.tokens {
		k := &t.tokens[i]
		value, after, found := k.cut(rest, i == len(t.tokens)-1 && !t.open)
		if !found {
			return k.missing
		}
		rest = after
		if k.field == skip || value == "" || value == "-" {
			continue
		}
		err := d.set(k.field, k.name, t.escape.plain(&d.texts, value))
		if err == errNotHTTP {
			notHTTP = err // if the rest has the format
		} else if err != nil {
			return err
		}
	}
	if rest != "" && !t.open {
		return errEnd
	}
	return notHTTP
}

// cut takes the value from the beginning of the text.
func (k *token) cut(text string, last bool) (value, rest string, found bool) {
	if k.until == "" {
		return text, "", true
	}
	if last && !k.quoted {
		value, found = strings.CutSuffix(text, k.until)
		return value, "", found
	}
	for from := 0; ; {
		at := strings.IndexByte(text[from:], k.until[0])
		if at < 0 {
			return "", "", false
		}
		at += from
		from = at + 1
		switch {
		case !strings.HasPrefix(text[at:], k.until):
		case k.quoted && escaped(text[:at]):
		case k.list && continues(text[:at], text[at+1:]):
		case k.keep:
			return text[:at], text[at:], true
		default:
			return text[:at], text[at+len(k.until):], true
		}
	}
}

// escaped reports whether the next character has a backslash before it that is not escaped itself.
func escaped(before string) bool {
	backslashes := len(before) - len(strings.TrimRight(before, `\`))
	return backslashes%2 == 1
}

// continues reports whether a list goes on: nginx writes "a, b : c" for several upstreams.
func continues(before, after string) bool {
	return strings.HasSuffix(before, ",") || strings.HasSuffix(before, " :") || strings.HasPrefix(after, ": ")
}
