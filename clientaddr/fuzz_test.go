package clientaddr_test

import (
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/weirproject/weir/clientaddr"
)

// node is the spelling of an address, in a way that the package does not read it.
var node = regexp.MustCompile(`^(?:(\d+\.\d+\.\d+\.\d+)(?::(?:\d{1,5}|_[A-Za-z0-9._-]+))?|` +
	`([0-9A-Fa-f.]*(?::[0-9A-Fa-f.]*){2,})(?:%[A-Za-z0-9._-]+)?|` +
	`\[([0-9A-Fa-f.:]*:[0-9A-Fa-f.:]*)(?:%[A-Za-z0-9._-]+)?\](?::(?:\d{1,5}|_[A-Za-z0-9._-]+))?)$`)

func readNode(text string) (netip.Addr, bool) {
	found := node.FindStringSubmatch(text)
	if found == nil {
		return netip.Addr{}, false
	}
	ip := net.ParseIP(found[1] + found[2] + found[3])
	if ip == nil {
		return netip.Addr{}, false
	}
	address, ok := netip.AddrFromSlice(ip)
	return address.Unmap(), ok
}

// model is the rule in its simplest form: all lines are one list; go left past trusted hops.
func model(peer string, lines []string) (netip.Addr, bool) {
	at, ok := readNode(peer)
	if !ok || !trustsSlowly(at) {
		return at, ok
	}
	elements := strings.Split(strings.Join(lines, ","), ",")
	for hops := 1; len(elements) > 0 && hops <= clientaddr.MaxHops; hops++ {
		last := elements[len(elements)-1]
		hop, ok := readNode(strings.Trim(last, " \t"))
		if !ok || len(last) > 512 {
			return at, true
		}
		if at = hop; !trustsSlowly(at) {
			return at, true
		}
		elements = elements[:len(elements)-1]
	}
	return at, true
}

func trustsSlowly(address netip.Addr) bool {
	for _, prefix := range proxies {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// The result equals the model's: the peer, or an address right of the first untrusted hop, or
// that hop.
func FuzzXForwardedFor(f *testing.F) {
	f.Add("10.0.0.1:1", "6.6.6.6, 198.51.100.7\n10.0.0.2")
	f.Add("[fe80::1%eth0]:1", "fe80::2%a, [fd00::1%b]:_c, ::ffff:10.0.0.1\n")
	f.Add("10.0.0.1", "x,,10.0.0.2:80,[::ffff:10.0.0.3]:1,[10.0.0.4],010.0.0.5")
	e := extractor(f)
	f.Fuzz(func(t *testing.T, peer, header string) {
		lines := strings.Split(header, "\n")
		got, ok := e.From(peer, lines)
		want, known := model(peer, lines)
		if ok != known || ok && got != want {
			t.Errorf("peer %q, %q: %v, %v; the model says %v, %v", peer, lines, got, ok, want, known)
		}
		if got.Zone() != "" || got.Is4In6() {
			t.Errorf("%v is not in normal form", got)
		}
	})
}

// The elements that the proxies add decide, in the client's line or below, after any text and
// number of lines of the client.
func FuzzClientsCannotChoose(f *testing.F) {
	for _, sent := range []string{"", "for=6.6.6.6", "6.6.6.6, 10.0.0.1", `for="`, `for="\`, `\\\`, "\n", ",;,",
		`by="a\"b", for="[::1]`, `="`, `x="" ""`} {
		f.Add(sent)
	}
	const client = "2001:db8::7"
	headers := map[string][]string{ // elements that two proxies add, each in one of several ways
		"X-Forwarded-For": {client, "[" + client + "]:80", "10.0.0.2", "10.0.0.2:80"},
		"Forwarded": {`for="[` + client + `]"`, `by="a\"\\";for="[` + client + `]:80"`, "for=10.0.0.2",
			`for=10.0.0.2;host="a, \"b;c"`},
	}
	f.Fuzz(func(t *testing.T, sent string) {
		for name, added := range headers {
			e := extractor(t, clientaddr.WithHeader(name))
			for _, first := range added[:2] {
				for _, second := range added[2:] {
					for _, join := range []string{"\n\n", ",\n", "\n,", ",,"} {
						header := sent + join[:1] + first + join[1:] + second
						if got, ok := e.From("10.0.0.1:1", strings.Split(header, "\n")); !ok || got.String() != client {
							t.Fatalf("%s %q: %v, %v", name, header, got, ok)
						}
					}
				}
			}
		}
	})
}

const (
	token = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
	pair  = token + `=(?:` + token + `|"(?:[^"\\]|\\.)*")`
	group = `(?:` + pair + `)?(?:;(?:` + pair + `)?)*`
)

// The grammar of RFC 7239, read from the left.
var (
	grammar = regexp.MustCompile(`(?s)^` + group + `(?:[ \t]*,[ \t]*` + group + `)*$`)
	inList  = regexp.MustCompile(`(?s)` + pair + `|,`)

	notInNodes = regexp.MustCompile(`[, \t]`) // but a list's
)

// forwardedModel turns a well-formed line into one for model; an element that does not
// name one address becomes an empty one.
func forwardedModel(line string) string {
	var list []string
	element, seen := "", 0
	for _, part := range append(inList.FindAllString(line, -1), ",") {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case part == "," && seen == 1:
			list, element, seen = append(list, element), "", 0
		case part == ",":
			list, element, seen = append(list, ""), "", 0
		case strings.EqualFold(name, "for"):
			element, seen = notInNodes.ReplaceAllString(strings.Trim(value, `"`), "?"), seen+1
		}
	}
	return strings.Join(list, ",")
}

// A line that is well formed reads the same from the left, as the RFC has it, and from the
// right. Of other text it is only asked that the peer or an address named by for= comes out.
func FuzzForwarded(f *testing.F) {
	f.Add(`for=6.6.6.6, for="[2001:db8::7]:_x";by=y`)
	f.Add(`for=198.51.100.7;ext="\", for=6.6.6.6;x=\""`)
	f.Add("for=198.51.100.7;ext=\", \\\\\"\t,\t;;For=\"[fd00::1]:8\";for=10.0.0.2,\nhost=a")
	f.Add(`for=unknown;by=",",for="10.0.0.2:80";x="",for=10.0.0.3`)
	e := extractor(f, clientaddr.WithHeader("Forwarded"))
	f.Fuzz(func(t *testing.T, header string) {
		lines := strings.Split(header, "\n")
		got, ok := e.From("10.0.0.1:1", lines)
		if !ok || got.String() != "10.0.0.1" && !strings.Contains(strings.ToLower(header), "for=") {
			t.Errorf("%q: %v, %v", header, got, ok)
		}
		var asList []string
		for _, line := range lines {
			if !grammar.MatchString(line) || len(header) > 400 {
				return
			}
			asList = append(asList, forwardedModel(line))
		}
		if want, _ := model("10.0.0.1:1", asList); got != want {
			t.Errorf("%q: %v; from the left, %v", header, got, want)
		}
	})
}
