package rules

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/text/unicode/norm"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/endpoints"
	"github.com/weirproject/weir/internal/netaddr"
)

// A component is one part of a key.
type component struct {
	source   source
	name     string
	label    string // prefix of its part of the key
	segment  int    // sourcePath: index of the path's segment; sourceEntry: of the entry
	foldCase bool   // sourcePath: the form of paths ignores case
	v4, v6   int    // sourceIP: lengths of prefixes
	trim     bool
	nfkc     bool
	lower    bool
	first    bool // the first of several values counts

	endpoints *endpoints.Table // sourceEndpoint of a key; nil: the path as it is
}

// parseComponent reads "client.ip v4/24 v6/56" or "header.X-User trim lower". complaint says why it is
// invalid.
func parseComponent(text, path string) (c component, complaint string) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return c, "allowed: " + strings.Join(sourceWords(), ", ")
	}
	c, complaint = parseSource(words[0], path)
	for _, option := range words[1:] {
		if complaint == "" {
			complaint = c.option(option)
		}
	}
	return c, complaint
}

func parseSource(word, path string) (c component, complaint string) {
	c = component{v4: defaultV4, v6: defaultV6, label: word + "="}
	var known bool
	if c.source, known = sourceOf(word, false); known {
		return c, ""
	}
	kind, name, dotted := strings.Cut(word, ".")
	source, ok := sourceOf(kind, true)
	if !ok || !dotted {
		return c, oneOf(word, sourceWords())
	}
	if !source.named(name) {
		return c, "a name of 1 to 128 of a-z A-Z 0-9 and !#$&'*+-._`|~ must follow " + kind + "."
	}
	c.source, c.name = source, name
	if source == sourceEntry {
		c.segment, complaint = entryNumber(name)
		return c, complaint
	}
	if source == sourceHeader {
		c.name = canonical(name)
		c.label = "header." + c.name + "="
	}
	if source == sourcePath {
		c.segment = indexOfSegment(path, "{"+name+"}")
		if c.segment < 0 {
			return c, "match.path must have a segment {" + name + "}"
		}
	}
	return c, ""
}

// indexOfSegment is the index of a pattern's segment, or −1.
func indexOfSegment(path, wanted string) int {
	i := 0
	for segment := range segments(path) {
		if segment == wanted {
			return i
		}
		i++
	}
	return -1
}

// option reads a word after the source.
func (c *component) option(word string) (complaint string) {
	if c.source == sourceIP {
		family, bits, _ := strings.Cut(word, "/")
		n, err := strconv.Atoi(bits)
		most := map[string]int{"v4": 32, "v6": 128}[family]
		if err != nil || n < 1 || n > most || strconv.Itoa(n) != bits {
			return "allowed after client.ip: v4/1 to v4/32 and v6/1 to v6/128 (default: v4/32 v6/64)"
		}
		if family == "v4" {
			c.v4 = n
		} else {
			c.v6 = n
		}
		return ""
	}
	if c.source.geo() != 0 {
		return "nothing follows " + strings.TrimSuffix(c.label, "=")
	}
	switch word {
	case "trim":
		c.trim = true
	case "nfkc":
		c.nfkc = true
	case "lower":
		c.lower = true
	case "first":
		if !c.source.several() {
			return "first is for header.NAME, query.NAME, cookie.NAME, body.NAME and json.PATH, of which there " +
				"may be several"
		}
		c.first = true
	default:
		return "after the source: " + oneOf(word, []string{"trim", "nfkc", "lower", "first"})
	}
	return ""
}

// Lengths of the networks that count as one client.
const (
	defaultV4 = 32
	defaultV6 = 64
)

// keyOfAll is the key of a rule without components.
const keyOfAll = "all"

// hashedKey is the prefix of a key that replaces a long one. It is no source.
const hashedKey = "hmac-sha256:"

// AppendKey appends the key that a request is counted under. If a component is missing, a rule with on_missing:
// anonymous counts all requests without it together; for any other, dst is returned unchanged and ok is false: see
// OnMissing. It allocates only to grow dst.
//
// Each component is written as its source, the length of its value and the value, so that no two identities
// share a key. A key longer than bounds.PlainKey is replaced by a keyed hash.
func (r *Rule) AppendKey(dst []byte, request *Request) (key []byte, ok bool) {
	start := len(dst)
	if len(r.components) == 0 {
		return append(dst, keyOfAll...), true
	}
	for i := range r.components {
		c := &r.components[i]
		dst = c.begin(dst, i)
		value := len(dst)
		dst = c.appendValue(dst, request)
		if len(dst) > value {
			dst = insertLength(dst, value)
		} else if r.onMissing == Anonymous {
			dst = append(dst, '-')
		} else {
			return dst[:start], false
		}
	}
	return r.set.keyHash.long(dst, start), true
}

// SameKey reports whether two rules of a set count each request by the same key.
func (r *Rule) SameKey(other *Rule) bool {
	return slices.Equal(r.components, other.components) &&
		(r.onMissing == Anonymous) == (other.onMissing == Anonymous)
}

// begin appends the prefix of the component's part of a key.
func (c *component) begin(dst []byte, i int) []byte {
	if i > 0 {
		dst = append(dst, ' ')
	}
	return append(dst, c.label...)
}

// insertLength inserts the length of dst[value:] before it: the length is known only after normalisation.
func insertLength(dst []byte, value int) []byte {
	if n := len(dst) - value; n < 10 {
		dst = append(dst, 0, 0)
		copy(dst[value+2:], dst[value:])
		dst[value], dst[value+1] = '0'+byte(n), ':'
		return dst
	}
	var digits [24]byte
	length := append(strconv.AppendInt(digits[:0], int64(len(dst)-value), 10), ':')
	dst = append(dst, length...)
	copy(dst[value+len(length):], dst[value:])
	copy(dst[value:], length)
	return dst
}

// appendValue leaves dst unchanged if the request lacks the component.
func (c *component) appendValue(dst []byte, r *Request) []byte {
	start := len(dst)
	switch c.source {
	case sourceIP:
		return c.appendIP(dst, r)
	case sourceASN:
		return r.appendASN(dst)
	case sourceHost:
		dst = appendFolded(dst, r.Host)
	case sourceEntry:
		dst = r.appendEntry(dst, c.segment)
	case sourcePath:
		dst = appendUnescaped(dst, segment(r.Path, c.segment))
	default:
		dst = append(dst, c.value(r)...)
	}
	if c.trim || c.nfkc || c.lower {
		return c.normalise(dst, start)
	}
	return dst
}

// made reports whether values of the source are no texts of the request.
func (s source) made() bool {
	return s == sourceIP || s == sourceASN || s == sourceHost || s == sourcePath || s == sourceEntry
}

// text is appendValue for lookups: values that are not normalised are not copied. The buffer must live as long
// as the text.
func (c *component) text(buffer []byte, r *Request) string {
	if !c.trim && !c.nfkc && !c.lower && !c.source.made() {
		return c.value(r)
	}
	value := c.appendValue(buffer, r)
	return unsafe.String(unsafe.SliceData(value), len(value))
}

// normalise applies trim, nfkc and lower to dst[start:], always in this order.
func (c *component) normalise(dst []byte, start int) []byte {
	if c.trim {
		dst = dst[:start+copy(dst[start:], bytes.TrimSpace(dst[start:]))]
	}
	if ascii := isASCII(dst[start:]); c.nfkc && !ascii {
		// Not norm's Append: it would compose the first letter with the = before it. The copies keep the
		// callers' buffers off the heap.
		dst = append(dst[:start], norm.NFKC.String(string(dst[start:]))...)
	}
	if !c.lower {
		return dst
	}
	end := len(dst)
	dst = appendLower(dst, dst[start:end])
	return dst[:start+copy(dst[start:], dst[end:])]
}

func isASCII[T string | []byte](text T) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func (c *component) value(r *Request) string {
	switch {
	case c.source == sourceConstant:
		return c.name
	case c.source == sourceEndpoint && r.Route != "":
		return r.Route
	case c.source == sourceEndpoint && c.endpoints == nil:
		return r.Path
	case c.source == sourceEndpoint:
		return c.endpoints.Of(r.Path)
	}
	return r.attribute(c.source, c.name)
}

// appendIP appends the address or its network. IPv4 in IPv6 is IPv4, and zones are dropped, so that an address
// has one key.
func (c *component) appendIP(dst []byte, r *Request) []byte {
	address := netaddr.Plain(r.Client)
	bits := c.v6
	if address.Is4() {
		bits = c.v4
	}
	if !address.IsValid() {
		return dst
	}
	network, _ := address.Prefix(bits) // bits were checked against the family
	return appendNetwork(dst, network)
}

// appendNetwork appends a network, or the address if it is a single one.
func appendNetwork(dst []byte, network netip.Prefix) []byte {
	if network.IsSingleIP() {
		return network.Addr().AppendTo(dst)
	}
	return network.AppendTo(dst)
}

// appendLower appends s in lower case. Bytes that are not UTF-8 are unchanged: if they became replacement
// characters, different values would share a key.
func appendLower(dst, s []byte) []byte {
	for i := 0; i < len(s); {
		c, size := utf8.DecodeRune(s[i:])
		if c == utf8.RuneError && size == 1 {
			dst = append(dst, s[i])
		} else {
			dst = utf8.AppendRune(dst, unicode.ToLower(c))
		}
		i += size
	}
	return dst
}

// appendFolded lowers ASCII only: host names have no other capitals on the wire.
func appendFolded(dst []byte, s string) []byte {
	for i := range len(s) {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

// A keyHash is HMAC-SHA256 with the two blocks of its key precomputed: crypto/hmac would allocate.
type keyHash struct{ inner, outer [sha256.BlockSize]byte }

func newSeal(key []byte) (s keyHash) {
	if len(key) > sha256.BlockSize {
		sum := sha256.Sum256(key)
		key = sum[:]
	}
	copy(s.inner[:], key)
	copy(s.outer[:], key)
	for i := range s.inner {
		s.inner[i] ^= 0x36
		s.outer[i] ^= 0x5c
	}
	return s
}

// long replaces dst[start:] if it is too long for a key.
func (s *keyHash) long(dst []byte, start int) []byte {
	if len(dst)-start <= bounds.PlainKey {
		return dst
	}
	return s.replace(dst, start)
}

// replace replaces dst[start:] by its hash.
func (s *keyHash) replace(dst []byte, start int) []byte {
	end := len(dst)
	dst = append(dst, s.inner[:]...)
	dst = append(dst, dst[start:end]...)
	sum := sha256.Sum256(dst[end:])
	var block [sha256.BlockSize + sha256.Size]byte
	copy(block[:], s.outer[:])
	copy(block[sha256.BlockSize:], sum[:])
	sum = sha256.Sum256(block[:])
	return hex.AppendEncode(append(dst[:start], hashedKey...), sum[:])
}
