package accesslog

import (
	"errors"
	"net/textproto"
	"strconv"
	"strings"
)

// A node is a value of interest in an object, or an object or array that has such values.
type node struct {
	key   string
	field field
	name  string // of a header field
	kids  []*node
}

// deepest is how deep objects and arrays may be nested.
const deepest = 64

var errJSON = errors.New("not a JSON object")

// add puts a field at a path: .a.b, .a[0] or ."a.b". A leading dot may be missing.
func (n *node) add(path string, f field, name string) error {
	rest := path
	for rest != "" {
		var key string
		switch {
		case strings.HasPrefix(rest, `."`):
			inside, after, found := strings.Cut(rest[2:], `"`)
			if !found {
				return errors.New("a quote is not closed")
			}
			key, rest = inside, after
		case rest[0] == '[':
			inside, after, found := strings.Cut(rest[1:], "]")
			if _, err := strconv.ParseUint(inside, 10, 16); err != nil || !found {
				return errors.New("an index is a number in brackets")
			}
			key, rest = inside, after
		default:
			rest = strings.TrimPrefix(rest, ".")
			at := strings.IndexAny(rest, ".[")
			if at < 0 {
				at = len(rest)
			}
			key, rest = rest[:at], rest[at:]
		}
		if key == "" {
			return errors.New("a key is empty")
		}
		n = n.kid(key)
	}
	if n.field != skip || n.kids != nil {
		return errors.New("two values are at one place")
	}
	n.field, n.name = f, name
	return nil
}

func (n *node) kid(key string) *node {
	if found := n.find(key); found != nil {
		return found
	}
	kid := &node{key: key}
	n.kids = append(n.kids, kid)
	return kid
}

func (n *node) find(key string) *node {
	for _, kid := range n.kids {
		if kid.key == key {
			return kid
		}
	}
	return nil
}

// A scanner reads a line of JSON, and of it only the values of a node.
type scanner struct {
	text   string
	at     int
	d      *draft
	header node // of the header field that is read
}

func (s *scanner) headerNode(key string) *node {
	s.header = node{field: header, name: textproto.CanonicalMIMEHeaderKey(key)}
	if s.header.name == "User-Agent" {
		s.header.field = agent
	}
	return &s.header
}

// read reads a line into a draft.
func (n *node) read(line string, d *draft) error {
	s := scanner{text: line, d: d}
	if s.peek() != '{' {
		return errJSON
	}
	var notHTTP error
	err := s.object(n, 0)
	if err == errNotHTTP {
		notHTTP = err
	}
	if err != nil && notHTTP == nil {
		return err
	}
	if s.peek() != 0 && notHTTP == nil {
		return errJSON
	}
	return notHTTP
}

// peek is the next byte that is not a space, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// more takes a comma or the closing sign.
func (s *scanner) more(closing byte) (more bool, err error) {
	switch s.peek() {
	case ',':
		s.at++
		return true, nil
	case closing:
		s.at++
		return false, nil
	}
	return false, errJSON
}

// object reads an object; n, if not nil, names the values to keep.
func (s *scanner) object(n *node, depth int) (err error) {
	s.at++
	if s.peek() == '}' {
		s.at++
		return nil
	}
	for more := true; more; {
		if s.peek() != '"' {
			return errJSON
		}
		key, err := s.str(n != nil)
		if err != nil || s.peek() != ':' {
			return errJSON
		}
		s.at++
		var kid *node
		if n != nil {
			if kid = n.find(key); n.field == headers {
				kid = s.headerNode(key)
			}
		}
		if err = s.value(kid, depth+1); err != nil {
			return err
		}
		if more, err = s.more('}'); err != nil {
			return err
		}
	}
	return nil
}

// array reads an array. All elements are values of a node that has no others.
func (s *scanner) array(n *node, depth int) (err error) {
	s.at++
	if s.peek() == ']' {
		s.at++
		return nil
	}
	index := 0
	for more := true; more; index++ {
		kid := n
		if n != nil && len(n.kids) > 0 {
			kid = n.find(strconv.Itoa(index))
		}
		if err = s.value(kid, depth+1); err != nil {
			return err
		}
		if more, err = s.more(']'); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) value(n *node, depth int) error {
	if depth > deepest {
		return errJSON
	}
	switch from := s.at; s.peek() {
	case '{':
		return s.object(n, depth)
	case '[':
		if n == nil || n.field != descriptors {
			return s.array(n, depth)
		}
		if err := s.array(nil, depth); err != nil {
			return err
		}
		return s.set(n, s.text[from:s.at])
	case '"':
		text, err := s.str(n != nil)
		if err != nil {
			return err
		}
		return s.set(n, text)
	}
	from := s.at
	for s.at < len(s.text) && strings.IndexByte(",}] \t\r\n", s.text[s.at]) < 0 {
		s.at++
	}
	switch word := s.text[from:s.at]; {
	case word == "null", word == "true", word == "false":
		return nil
	case isNumber(word):
		return s.set(n, word)
	}
	return errJSON
}

func (s *scanner) set(n *node, text string) error {
	if n == nil || n.field == skip || n.field == headers || text == "" || text == "-" {
		return nil
	}
	return s.d.set(n.field, n.name, text)
}

// str reads a string; its escapes are only undone if its text is wanted.
func (s *scanner) str(wanted bool) (text string, err error) {
	s.at++
	from := s.at
	for {
		at := strings.IndexByte(s.text[s.at:], '"')
		if at < 0 {
			return "", errJSON
		}
		s.at += at + 1
		if text = s.text[from : s.at-1]; !escaped(text) {
			break
		}
	}
	if wanted {
		text = backslash.plain(&s.d.texts, text)
	}
	return text, nil
}

// isNumber reports whether a word may be a number; values that are of interest are read more strictly.
func isNumber(word string) bool {
	for _, c := range []byte(word) {
		if c-'0' > 9 && strings.IndexByte("+-.eE", c) < 0 {
			return false
		}
	}
	return word != ""
}
