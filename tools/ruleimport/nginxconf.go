package ruleimport

import (
	"strings"
)

// Bounds of the files of nginx.
const (
	maxIncludes   = 1000    // files that are included
	maxDirectives = 200_000 // of all files
	maxDepth      = 64      // nesting
)

// A directive is a directive of a file of nginx, with the directives of its block.
type directive struct {
	file  string
	line  int
	name  string
	args  []string
	block []*directive
}

// A confParser reads the files of nginx: words, quotes, comments, blocks and includes.
type confParser struct {
	*Job
	main     string // the first file, which includes are relative to
	file     string
	text     string
	at       int
	line     int
	depth    int // blocks and files around this place
	count    *int
	included *int
}

// conf reads a file with all that it includes.
func (j *Job) conf(t Text) []*directive {
	p := &confParser{Job: j, main: t.Name, file: t.Name, text: string(t.Data), line: 1, count: new(int),
		included: new(int)}
	return p.directives(false)
}

// directives are those up to the end of the block, or of the file.
func (p *confParser) directives(block bool) (list []*directive) {
	for {
		word, sign := p.word()
		switch {
		case p.over():
			return nil
		case sign == '}' && block, sign == 0 && !block:
			return list
		case sign == 0:
			p.Wrong(p.file, p.line, "the file ends within a block; a } is missing")
			return list
		case sign != 'w':
			p.Wrong(p.file, p.line, "unexpected %q; allowed: a directive, which ends with ; or a block", sign)
			return list
		}
		d := &directive{file: p.file, line: p.line, name: word}
		if !p.rest(d) {
			return list
		}
		if d.name == "include" && len(d.args) == 1 {
			list = append(list, p.include(d)...)
			continue
		}
		list = append(list, d)
	}
}

// over reports too many directives or nested blocks, once.
func (p *confParser) over() bool {
	if *p.count++; *p.count <= maxDirectives && p.depth <= maxDepth {
		return len(p.problems) > 0
	}
	if len(p.problems) == 0 {
		p.Wrong(p.file, p.line, "the files have over %d directives, or blocks and includes nested over %d times",
			maxDirectives, maxDepth)
	}
	return true
}

// rest reads the arguments and the block of a directive.
func (p *confParser) rest(d *directive) bool {
	for {
		switch word, sign := p.word(); sign {
		case 'w':
			d.args = append(d.args, word)
		case ';':
			return true
		case '{':
			if strings.HasSuffix(d.name, "_by_lua_block") {
				return p.skipped()
			}
			p.depth++
			d.block = append([]*directive{}, p.directives(true)...)
			p.depth--
			return len(p.problems) == 0
		default:
			p.Wrong(p.file, d.line, "directive %.80q does not end; allowed: ; or a block", d.name)
			return false
		}
	}
}

// skipped skips a block of another language, by its braces.
func (p *confParser) skipped() bool {
	for open := 1; p.at < len(p.text); p.at++ {
		switch p.text[p.at] {
		case '{':
			open++
		case '\n':
			p.line++
		case '}':
			if open--; open == 0 {
				p.at++
				return true
			}
		}
	}
	p.Wrong(p.file, p.line, "the file ends within a block; a } is missing")
	return false
}

// include reads the files that a directive includes. A file that cannot be read may have limits.
func (p *confParser) include(d *directive) (list []*directive) {
	if p.Job.include == nil {
		p.Lacks(d.file, d.line, "import the file too", "include %s, from which files cannot be read", d.args[0])
		return nil
	}
	texts, err := p.Job.include(p.main, d.args[0])
	if err != nil {
		p.Lacks(d.file, d.line, "make the file readable: its limits are missing", "include %s: %v", d.args[0], err)
		return nil
	}
	for _, t := range texts {
		if *p.included++; *p.included > maxIncludes {
			p.Wrong(d.file, d.line, "over %d files are included", maxIncludes)
			return list
		}
		if !p.sized(t) {
			return list
		}
		inner := &confParser{Job: p.Job, main: p.main, file: t.Name, text: string(t.Data), line: 1, depth: p.depth + 1,
			count: p.count, included: p.included}
		list = append(list, inner.directives(false)...)
	}
	return list
}

// word reads the next word, with the sign w, or one of ; { and }, or 0 at the end.
func (p *confParser) word() (word string, sign byte) {
	p.blank()
	if p.at == len(p.text) {
		return "", 0
	}
	switch c := p.text[p.at]; c {
	case ';', '{', '}':
		p.at++
		return "", c
	case '"', '\'':
		p.at++
		return p.until(func(next byte) bool { return next == c }, true), 'w'
	}
	return p.until(func(next byte) bool { return strings.IndexByte(" \t\r\n;{", next) >= 0 }, false), 'w'
}

// blank skips blanks and comments.
func (p *confParser) blank() {
	comment := false
	for ; p.at < len(p.text); p.at++ {
		c := p.text[p.at]
		switch {
		case c == '\n':
			p.line++
			comment = false
		case c == '#':
			comment = true
		case !comment && c != ' ' && c != '\t' && c != '\r':
			return
		}
	}
}

// escapes are the characters that lose a backslash before them; others keep it.
var escapes = map[byte]byte{'"': '"', '\'': '\'', '\\': '\\', 't': '\t', 'r': '\r', 'n': '\n'}

// until reads to an end that is consumed if it is a quote. A brace after a $ belongs to the word.
func (p *confParser) until(end func(byte) bool, quoted bool) string {
	var b strings.Builder
	for ; p.at < len(p.text); p.at++ {
		c := p.text[p.at]
		if c == '\n' {
			p.line++
		}
		if c == '\\' && p.at+1 < len(p.text) {
			p.at++
			if plain, known := escapes[p.text[p.at]]; known {
				b.WriteByte(plain)
			} else {
				b.WriteString(p.text[p.at-1 : p.at+1])
			}
			continue
		}
		if end(c) && !(c == '{' && !quoted && strings.HasSuffix(b.String(), "$")) {
			if quoted {
				p.at++
			} else if c == '\n' {
				p.line--
			}
			return b.String()
		}
		b.WriteByte(c)
	}
	if quoted {
		p.Wrong(p.file, p.line, "the file ends within quotes")
	}
	return b.String()
}
