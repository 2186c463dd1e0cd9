package accesslog

import (
	"fmt"
	"net/textproto"
	"strings"
)

// apacheDirectives are those that have a meaning here. Apache's time is that of the start.
// https://httpd.apache.org/docs/2.4/mod/mod_log_config.html
var apacheDirectives = map[string]variable{
	"a":          {field: client, rank: 2},
	"h":          {field: client, rank: 1}, // a name with HostnameLookups
	"{c}a":       {field: client},
	"u":          {field: user},
	"t":          {field: start},
	"{sec}t":     {field: start},
	"{msec}t":    {field: start, rank: 1},
	"{usec}t":    {field: start, rank: 2},
	"r":          {field: request},
	"m":          {field: method},
	"U":          {field: path},
	"q":          {field: query},
	"V":          {field: host},
	"v":          {field: host, rank: 1},
	"{Host}i":    {field: host, rank: 2},
	"s":          {field: status},
	"b":          {field: size, rank: 2},
	"B":          {field: size, rank: 1},
	"O":          {field: size},
	"D":          {field: tookMicros},
	"{us}T":      {field: tookMicros},
	"{ms}T":      {field: tookMillis},
	"T":          {field: took},
	"{s}T":       {field: took},
	"User-Agent": {field: agent, header: "User-Agent"},
}

// apacheFormat compiles the format of a LogFormat directive, in quotes or not.
func apacheFormat(text string) (*template, error) {
	text = strings.TrimSpace(text)
	if inside, found := strings.CutPrefix(text, `"`); found && strings.Contains(text, `\"`) {
		text = inside[:max(0, strings.LastIndexByte(inside, '"'))] // a nickname may follow
	}
	text = strings.NewReplacer(`\"`, `"`, `\t`, "\t", `\\`, `\`).Replace(text)
	prefix, text := literal(text)
	var pieces []piece
	for text != "" {
		directive, rest, err := apacheDirective(text[1:])
		if err != nil {
			return nil, err
		}
		p := piece{variable: apacheVariable(directive), label: "%" + directive}
		p.literal, text = literal(rest)
		if directive == "t" { // it has its own brackets
			if len(pieces) == 0 {
				prefix += "["
			} else {
				pieces[len(pieces)-1].literal += "["
			}
			p.literal = "]" + p.literal
		}
		if last := len(pieces) - 1; directive == "q" && last >= 0 && pieces[last].label+pieces[last].literal == "%U" {
			p.variable = variable{field: target} // %U%q is the path and ?query
			pieces = pieces[:last]
		}
		pieces = append(pieces, p)
	}
	return newTemplate(prefix, pieces, backslash)
}

// literal is the text before the next directive.
func literal(text string) (before, rest string) {
	var out strings.Builder
	for {
		at := strings.IndexByte(text, '%')
		if at < 0 {
			return out.String() + text, ""
		}
		out.WriteString(text[:at])
		if !strings.HasPrefix(text[at:], "%%") {
			return out.String(), text[at:]
		}
		out.WriteByte('%')
		text = text[at+2:]
	}
}

// apacheDirective takes >s, {Referer}i or !200,304{Referer}i from the beginning; it is s, {Referer}i.
func apacheDirective(text string) (directive, rest string, err error) {
	bare := strings.TrimLeft(text, "!<>,0123456789")
	argument := ""
	if strings.HasPrefix(bare, "{") {
		end := strings.IndexByte(bare, '}')
		if end < 0 {
			return "", "", fmt.Errorf("%%%s: a brace is not closed", text)
		}
		argument, bare = bare[:end+1], bare[end+1:]
	}
	length := 1
	if strings.HasPrefix(bare, "^") { // ^FU, ^ti, ^to
		length = 3
	}
	if len(bare) < length {
		return "", "", fmt.Errorf("%%%s: a directive has no letter", text)
	}
	return argument + bare[:length], bare[length:], nil
}

func apacheVariable(directive string) variable {
	if v, known := apacheDirectives[directive]; known {
		return v
	}
	name, found := strings.CutSuffix(directive, "}i")
	if !found {
		return variable{}
	}
	name = textproto.CanonicalMIMEHeaderKey(strings.TrimPrefix(name, "{"))
	if v, known := apacheDirectives[name]; known {
		return v
	}
	return variable{field: header, header: name, list: name == "X-Forwarded-For"}
}
