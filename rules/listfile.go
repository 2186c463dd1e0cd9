package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/internal/bounds"
)

// WithFiles allows lists to keep their values in files (deny: {client.ip: {file: blocked.txt}}). Parse, Load and Lint
// read them, and the file that they return has the values, so that Compile reads no file. Without it such a list is a
// mistake; rules from a URL or a database must stay without it, because their authors must not choose which files a
// server reads.
//
// name is a relative path with slashes, without "..". read must ensure that no link leads out of the directory
// of the rules, and that it returns at most bounds.ListFile+1 bytes. It is called once for each name.
func WithFiles(read func(name string) ([]byte, error)) Option {
	return func(o *options) { o.read = read }
}

// A listFile is the content of a file of values.
type listFile struct {
	complaint string // why it could not be read
	values    []string
	marks     []mark // of each value
}

// A listText is a file of values. Its line numbers continue the line numbers of the rules, so that a mark needs no file
// name.
type listText struct {
	name  string
	first int // number of lines before its first
}

// listed reads the values of a component: one, several, or a reference to a file.
func (d *decoder) listed(p place, n *yaml.Node) []string {
	if n.Kind != yaml.MappingNode {
		return d.list(p, n, bounds.Listed)
	}
	var l listing
	listFields.read(d, p, n, &l)
	file := at(p.rule, p.field+".file")
	if !d.has(file) {
		d.wrong(n, "%s names no file, such as file: blocked.txt; values alone need no mapping", p.field)
	}
	if l.file != "" {
		return d.join(p, l.values, l.file, file)
	}
	return l.values
}

// join adds the values of a file, without duplicates: two people who block one address at the same time must
// not make the file invalid.
func (d *decoder) join(p place, values []string, name string, file place) []string {
	f := d.listFile(name)
	if f.complaint != "" {
		d.add(file, "%s is %.200q; %s", file.field, name, f.complaint)
		return values
	}
	if d.filed += len(f.values); d.filed > bounds.AllListed {
		d.add(file, "%s: with %.200q the files of lists have over %d values", file.field, name, bounds.AllListed)
		return values
	}
	addresses := strings.HasSuffix(strings.TrimSpace(p.field), ".client.ip")
	seen := make(map[string]bool, len(f.values))
	for _, text := range values {
		seen[sameListed(text, addresses)] = true
	}
	added := joined{first: len(values)}
	for j, text := range f.values {
		same := sameListed(text, addresses)
		if seen[same] {
			continue
		}
		seen[same] = true
		values, added.marks = append(values, text), append(added.marks, f.marks[j])
	}
	if d.joined == nil {
		d.joined = make(map[place]joined)
	}
	d.joined[p] = added
	return values
}

// sameListed is equal for texts that name the same values.
func sameListed(text string, address bool) string {
	if address {
		if prefix, complaint := parsePrefix(text); complaint == "" {
			return prefix.String()
		}
		return text
	}
	if p, complaint := parsePattern(text); complaint == "" {
		return p.String()
	}
	return text
}

// listFile is the file of that name, which is read once.
func (d *decoder) listFile(name string) *listFile {
	if f := d.files[name]; f != nil {
		return f
	}
	f := new(listFile)
	switch {
	case d.read == nil:
		f.complaint = "only rules from a file, not on standard input, a URL or in a database, may name " +
			"another one: write the values here, or put the rules into a file beside it"
	case len(name) > bounds.Text || !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\\:\x00"):
		f.complaint = "allowed: a file beside the rules or below, such as blocked.txt or lists/blocked.txt, without " +
			".. or a drive, and not from the root"
	case len(d.files) >= bounds.ListFiles:
		f.complaint = fmt.Sprintf("the rules up to here name %d files; at most that many", bounds.ListFiles)
		return f
	default:
		d.fetch(name, f)
	}
	if d.files == nil {
		d.files = make(map[string]*listFile)
	}
	d.files[name] = f
	return f
}

func (d *decoder) fetch(name string, f *listFile) {
	text, err := d.read(name)
	var path *fs.PathError
	switch {
	case errors.As(err, &path): // without the path on this machine
		f.complaint = "it cannot be read: " + path.Err.Error()
	case err != nil:
		f.complaint = "it cannot be read: " + err.Error()
	case len(text) > bounds.ListFile:
		f.complaint = fmt.Sprintf("it has over %d bytes; that is too much", bounds.ListFile)
	case len(bytes.TrimSpace(text)) == 0:
		f.complaint = "it is empty; a list that is empty on purpose has a comment, such as # nobody; any other empty " +
			"file may be one that was cut short"
	default:
		d.values(filepath.Join(filepath.Dir(d.report.file), filepath.FromSlash(name)), string(text), f)
	}
}

// values reads one value of each line. A # at the start of a line or after a blank begins a comment.
func (r *report) values(name, text string, f *listFile) {
	first := len(r.lines)
	r.texts = append(r.texts, listText{name, first})
	r.lines = append(r.lines, strings.Split(text, "\n")...)
	for i, line := range r.lines[first:] {
		m := mark{first + i + 1, 1}
		if !utf8.ValidString(line) {
			r.put(m, at(-1, "file"), "this line is not UTF-8; save the file as UTF-8")
			return
		}
		value, blanks := valueOf(line, i == 0)
		if value == "" {
			continue
		}
		if len(f.values) == bounds.Listed {
			r.put(m, at(-1, "file"), "here begins value %d; at most %d", bounds.Listed+1, bounds.Listed)
			return
		}
		m.column += blanks
		f.values, f.marks = append(f.values, value), append(f.marks, m)
	}
}

// valueOf returns the value of a line and the number of characters before it. Some editors begin a file with a
// byte order mark.
func valueOf(line string, first bool) (value string, blanks int) {
	value = line
	if first {
		value = strings.TrimPrefix(value, "\uFEFF")
	}
	for i := range value {
		if value[i] == '#' && (i == 0 || value[i-1] == ' ' || value[i-1] == '\t') {
			value = value[:i]
			break
		}
	}
	value = strings.TrimSpace(value)
	before, _, _ := strings.Cut(line, value)
	return value, utf8.RuneCountInString(before)
}

// textOf is the file of a line, and the number of the line in it.
func (r *report) textOf(line int) (name string, own int) {
	for i := len(r.texts) - 1; i >= 0; i-- {
		if text := r.texts[i]; line > text.first {
			return text.name, line - text.first
		}
	}
	return r.file, line
}
