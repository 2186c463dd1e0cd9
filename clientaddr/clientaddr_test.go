package clientaddr_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
)

// proxies are the trusted prefixes of most tests.
var proxies = prefixes("10.0.0.0/8", "fd00::/8", "fe80::/10", "203.0.113.9/32")

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func extractor(t testing.TB, opts ...clientaddr.Option) *clientaddr.Extractor {
	t.Helper()
	e, err := clientaddr.New(proxies, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A story is a request and its client: "" if that is not known.
type story struct {
	name  string
	peer  string
	lines []string
	want  string
}

func tell(t *testing.T, e *clientaddr.Extractor, stories []story) {
	t.Helper()
	for _, s := range stories {
		got, ok := e.From(s.peer, s.lines)
		if ok != (s.want != "") || ok && got.String() != s.want {
			t.Errorf("%s: peer %q, %.200q: %v, %v; want %q", s.name, s.peer, s.lines, got, ok, s.want)
		}
	}
}

func lines(l ...string) []string { return l }

func TestXForwardedFor(t *testing.T) {
	long := strings.Repeat("6.6.6.6, ", 100_000)
	tell(t, extractor(t), []story{
		{"no proxy", "198.51.100.7:1234", nil, "198.51.100.7"},
		{"spoofed address of a proxy, without a proxy", "198.51.100.7:1234", lines("10.0.0.1"), "198.51.100.7"},
		{"spoofed as a trusted proxy", "198.51.100.7:1234", lines("6.6.6.6, 10.0.0.1"), "198.51.100.7"},
		{"one proxy", "10.0.0.1:1234", lines("198.51.100.7"), "198.51.100.7"},
		{"the proxy said nothing", "10.0.0.1:1234", nil, "10.0.0.1"},
		{"leftmost is made up", "10.0.0.1:1", lines("6.6.6.6, 198.51.100.7"), "198.51.100.7"},
		{"leftmost is made up as trusted", "10.0.0.1:1", lines("10.9.9.9, 198.51.100.7"), "198.51.100.7"},
		{"two proxies", "10.0.0.1:1", lines("6.6.6.6, 198.51.100.7, 10.0.0.2"), "198.51.100.7"},
		{"a proxy named alone", "10.0.0.1:1", lines("198.51.100.7,203.0.113.9"), "198.51.100.7"},
		{"its neighbour", "10.0.0.1:1", lines("198.51.100.7,203.0.113.8"), "203.0.113.8"},
		{"all are trusted", "10.0.0.1:1", lines("10.0.0.3,10.0.0.2"), "10.0.0.3"},

		{"several lines", "10.0.0.1:1", lines("6.6.6.6", "198.51.100.7"), "198.51.100.7"},
		{"several lines and hops", "10.0.0.1:1", lines("6.6.6.6", "198.51.100.7", "10.0.0.3, 10.0.0.2"),
			"198.51.100.7"},
		{"the first line looks trusted", "10.0.0.1:1", lines("10.0.0.5", "6.6.6.6, 198.51.100.7"), "198.51.100.7"},

		{"garbage left of the client", "10.0.0.1:1", lines(`",;=\ 6.6.6.6, x, 198.51.100.7`), "198.51.100.7"},
		{"garbage left of a trusted hop", "10.0.0.1:1", lines("6.6.6.6, junk, 10.0.0.2"), "10.0.0.2"},
		{"garbage at once", "10.0.0.1:1", lines("6.6.6.6, junk"), "10.0.0.1"},
		{"unknown", "10.0.0.1:1", lines("6.6.6.6, unknown"), "10.0.0.1"},
		{"a proxy whose caller is on a Unix socket", "10.0.0.1:1", lines("6.6.6.6, unix:"), "10.0.0.1"},
		{"a host name", "10.0.0.1:1", lines("6.6.6.6, localhost"), "10.0.0.1"},
		{"a network", "10.0.0.1:1", lines("6.6.6.6, 10.0.0.0/8"), "10.0.0.1"},
		{"octal, perhaps", "10.0.0.1:1", lines("6.6.6.6, 010.0.0.2"), "10.0.0.1"},
		{"a number", "10.0.0.1:1", lines("6.6.6.6, 167772162"), "10.0.0.1"},
		{"three numbers", "10.0.0.1:1", lines("6.6.6.6, 10.0.2"), "10.0.0.1"},
		{"two in one element", "10.0.0.1:1", lines("6.6.6.6, 6.6.6.6 10.0.0.2"), "10.0.0.1"},
		{"quoted", "10.0.0.1:1", lines(`6.6.6.6, "10.0.0.2"`), "10.0.0.1"},
		{"a blank of Unicode", "10.0.0.1:1", lines("6.6.6.6,\u00a010.0.0.2"), "10.0.0.1"},
		{"NUL", "10.0.0.1:1", lines("6.6.6.6, 10.0.0.2\x00"), "10.0.0.1"},

		{"an empty header", "10.0.0.1:1", lines(""), "10.0.0.1"},
		{"an empty line last", "10.0.0.1:1", lines("6.6.6.6", ""), "10.0.0.1"},
		{"an empty element last", "10.0.0.1:1", lines("6.6.6.6,"), "10.0.0.1"},
		{"an empty element between", "10.0.0.1:1", lines("6.6.6.6, , 10.0.0.2"), "10.0.0.2"},
		{"empty elements left of the client", "10.0.0.1:1", lines(",,,198.51.100.7"), "198.51.100.7"},
		{"blanks and tabs", "10.0.0.1:1", lines("6.6.6.6 ,\t 198.51.100.7 \t"), "198.51.100.7"},

		{"mapped peer", "[::ffff:10.0.0.1]:1", lines("198.51.100.7"), "198.51.100.7"},
		{"mapped client", "10.0.0.1:1", lines("6.6.6.6, ::ffff:198.51.100.7"), "198.51.100.7"},
		{"mapped proxy", "10.0.0.1:1", lines("6.6.6.6, 198.51.100.7, ::ffff:a00:2"), "198.51.100.7"},
		{"mapped, not trusted", "[::ffff:198.51.100.7]:1", lines("6.6.6.6"), "198.51.100.7"},
		{"compatible is not mapped", "10.0.0.1:1", lines("6.6.6.6, ::10.0.0.2"), "::a00:2"},

		{"the peer's zone", "[fe80::1%eth0]:1", lines("198.51.100.7"), "198.51.100.7"},
		{"a client's zone", "10.0.0.1:1", lines("2001:db8::7%a"), "2001:db8::7"},
		{"a proxy's zone", "10.0.0.1:1", lines("198.51.100.7, [fe80::2%en1]:80"), "198.51.100.7"},
		{"a zone as URIs have it", "10.0.0.1:1", lines("198.51.100.7, [fe80::2%25en1]:80"), "198.51.100.7"},
		{"a zone of other characters", "10.0.0.1:1", lines("6.6.6.6, fe80::2%e,fe80::3%a b"), "10.0.0.1"},
		{"IPv4 has no zones", "10.0.0.1:1", lines("6.6.6.6, 10.0.0.2%eth0"), "10.0.0.1"},
		{"a zone without a name", "10.0.0.1:1", lines("6.6.6.6, fe80::2%"), "10.0.0.1"},

		{"a port", "10.0.0.1:1", lines("6.6.6.6, 198.51.100.7:4711"), "198.51.100.7"},
		{"a proxy's port", "10.0.0.1:1", lines("198.51.100.7:4711, 10.0.0.2:80"), "198.51.100.7"},
		{"brackets", "10.0.0.1:1", lines("[2001:db8::7]"), "2001:db8::7"},
		{"brackets and a port", "10.0.0.1:1", lines("[2001:db8::7]:4711"), "2001:db8::7"},
		{"neither", "10.0.0.1:1", lines("2001:DB8:0::7"), "2001:db8::7"},
		{"a port without a number", "10.0.0.1:1", lines("6.6.6.6, 10.0.0.2:"), "10.0.0.1"},
		{"a port that is none", "10.0.0.1:1", lines("6.6.6.6, 10.0.0.2:x"), "10.0.0.1"},
		{"a port too long", "10.0.0.1:1", lines("6.6.6.6, 10.0.0.2:123456"), "10.0.0.1"},
		{"IPv4 in brackets", "10.0.0.1:1", lines("6.6.6.6, [10.0.0.2]"), "10.0.0.1"},
		{"an open bracket", "10.0.0.1:1", lines("6.6.6.6, [fd00::2"), "10.0.0.1"},
		{"more after the bracket", "10.0.0.1:1", lines("6.6.6.6, [fd00::2]80"), "10.0.0.1"},
		{"two brackets", "10.0.0.1:1", lines("6.6.6.6, [[fd00::2]]"), "10.0.0.1"},

		{"a long header", "10.0.0.1:1", lines(long + "198.51.100.7"), "198.51.100.7"},
		{"a long element", "10.0.0.1:1", lines("6.6.6.6," + strings.Repeat(" ", 600) + "10.0.0.2"), "10.0.0.1"},
		{"a long element alone", "10.0.0.1:1", lines(strings.Repeat(" ", 600) + "198.51.100.7"), "10.0.0.1"},
		{"the longest element", "10.0.0.1:1", lines("6.6.6.6," + strings.Repeat(" ", 500) + "198.51.100.7"),
			"198.51.100.7"},
		{"the longest element alone", "10.0.0.1:1", lines(strings.Repeat(" ", 500) + "198.51.100.7"), "198.51.100.7"},
		{"the last hop that is read", "10.0.0.1:1",
			lines("198.51.100.7" + strings.Repeat(",10.0.0.2", clientaddr.MaxHops-1)), "198.51.100.7"},
		{"one hop more", "10.0.0.1:1", lines("198.51.100.7" + strings.Repeat(",10.0.0.2", clientaddr.MaxHops)),
			"10.0.0.2"},

		{"no peer", "", lines("6.6.6.6"), ""},
		{"a peer on a Unix socket", "@", lines("6.6.6.6"), ""},
		{"a peer that is no address", "10.0.0.1:http", lines("6.6.6.6"), ""},
		{"a peer without a port", "10.0.0.1", lines("198.51.100.7"), "198.51.100.7"},
	})
}

func TestForwarded(t *testing.T) {
	const peer = "10.0.0.1:1"
	e := extractor(t, clientaddr.WithHeader("forwarded"))
	tell(t, e, []story{
		{"no proxy", "198.51.100.7:1234", lines("for=6.6.6.6"), "198.51.100.7"},
		{"one proxy", peer, lines("for=198.51.100.7;proto=http;by=10.0.0.1"), "198.51.100.7"},
		{"leftmost is made up", peer, lines("for=6.6.6.6, for=198.51.100.7"), "198.51.100.7"},
		{"two proxies", peer, lines("for=6.6.6.6, For=198.51.100.7 ;proto=https , FOR=10.0.0.2"), "198.51.100.7"},
		{"several lines", peer, lines("for=6.6.6.6", "for=198.51.100.7, for=10.0.0.3", "for=10.0.0.2"), "198.51.100.7"},
		{"for comes last", peer, lines(`by="_a;for=6.6.6.6, b";proto=http;for=198.51.100.7`), "198.51.100.7"},
		{"empty pairs", peer, lines("for=6.6.6.6, ;;for=198.51.100.7;;"), "198.51.100.7"},
		{"quoted IPv6", peer, lines(`for="[2001:db8::7]"`), "2001:db8::7"},
		{"quoted IPv6 and a port", peer, lines(`for="[2001:db8::7]:4711", for="[fd00::2]:80"`), "2001:db8::7"},
		{"an obfuscated port", peer, lines(`for="198.51.100.7:_p.o-rt"`), "198.51.100.7"},
		{"mapped", peer, lines(`for="[::ffff:198.51.100.7]"`), "198.51.100.7"},
		{"the widest of its kind", peer,
			lines(`for=6.6.6.6,for=198.51.100.7;ext="` + strings.Repeat(`\"`, 240) + `"`), "198.51.100.7"},

		{"unknown", peer, lines("for=6.6.6.6, for=unknown"), "10.0.0.1"},
		{"obfuscated", peer, lines("for=6.6.6.6, for=_hidden"), "10.0.0.1"},
		{"obfuscated left of a trusted hop", peer, lines("for=6.6.6.6, for=_10.0.0.3, for=10.0.0.2"), "10.0.0.2"},
		{"an obfuscated port without a name", peer, lines(`for=6.6.6.6, for="10.0.0.2:_"`), "10.0.0.1"},
		{"no for", peer, lines("for=6.6.6.6, proto=http"), "10.0.0.1"},
		{"two of it", peer, lines("for=6.6.6.6;for=10.0.0.2"), "10.0.0.1"},
		{"two of it, one garbage", peer, lines("for=x;for=10.0.0.2"), "10.0.0.1"},
		{"not a pair", peer, lines("for=6.6.6.6, for=10.0.0.2;secure"), "10.0.0.1"},
		{"the syntax of X-Forwarded-For", peer, lines("6.6.6.6, 10.0.0.2"), "10.0.0.1"},
		{"an empty header", peer, lines(""), "10.0.0.1"},
		{"an empty element", peer, lines("for=6.6.6.6, , for=10.0.0.2"), "10.0.0.2"},
		{"an empty element last", peer, lines("for=6.6.6.6,"), "10.0.0.1"},
		{"blanks round =", peer, lines("for=6.6.6.6, for = 10.0.0.2"), "10.0.0.1"},
		{"an escape in the address", peer, lines(`for=6.6.6.6, for="10.0.0\.2"`), "10.0.0.1"},

		{"a lone quote of the client", peer, lines(`for=", for=198.51.100.7`), "198.51.100.7"},
		{"a lone quote, quotes after it", peer, lines(`for="x, for="[2001:db8::7]"`), "2001:db8::7"},
		{"a lone quote in its own line", peer, lines(`for="`, `for="[2001:db8::7]", for=10.0.0.2`), "2001:db8::7"},
		{"an escaped quote of the client", peer, lines(`for="\", for="198.51.100.7"`), "198.51.100.7"},
		{"backslashes of the client", peer, lines(`\\\, for="198.51.100.7"`), "198.51.100.7"},
		{"an element within quotes", peer, lines(`for=198.51.100.7;ext=", for=6.6.6.6"`), "198.51.100.7"},
		{"escaped quotes within quotes", peer, lines(`for=198.51.100.7;ext="\", for=6.6.6.6;x=\""`), "198.51.100.7"},
		{"an escaped backslash last", peer, lines(`for=198.51.100.7;ext=", for=6.6.6.6\\"`), "198.51.100.7"},
		{"an escaped closing quote", peer, lines(`for=6.6.6.6, for=10.0.0.2;ext="\"`), "10.0.0.1"},
		{"a quote that is never opened", peer, lines(`for=6.6.6.6, for=10.0.0.2"`), "10.0.0.1"},
		{"quotes round the pair", peer, lines(`for=6.6.6.6, "for=10.0.0.2"`), "10.0.0.1"},
		{"quotes that begin within", peer, lines(`for=6.6.6.6, for=10.0.0.2;by=a"b"`), "10.0.0.1"},
		{"more after the quotes", peer, lines(`for=6.6.6.6, for="10.0.0.2"x`), "10.0.0.1"},

		{"a long header", peer, lines(strings.Repeat("for=6.6.6.6, ", 100_000) + "for=198.51.100.7"), "198.51.100.7"},
		{"a long element", peer, lines("for=10.0.0.2;ext=" + strings.Repeat("x", 600)), "10.0.0.1"},
		{"a long element, for last", peer, lines("ext=" + strings.Repeat("=x", 300) + ";for=10.0.0.2"), "10.0.0.1"},
		{"a long quoted element", peer, lines(`for=10.0.0.2;ext="` + strings.Repeat(`\`, 1<<20) + `"`), "10.0.0.1"},
		{"one hop too many", peer, lines("for=198.51.100.7" + strings.Repeat(",for=10.0.0.2", clientaddr.MaxHops)),
			"10.0.0.2"},
	})
}

// The other header is never read.
func TestOnlyTheNamedHeaderIsRead(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:1"
	r.Header.Set("X-Forwarded-For", "192.0.2.1")
	r.Header.Set("Forwarded", "for=192.0.2.2")
	r.Header.Set("X-Real-IP", "192.0.2.3")
	for name, want := range map[string]string{"x-forwarded-for": "192.0.2.1", "forwarded": "192.0.2.2"} {
		e := extractor(t, clientaddr.WithHeader(name))
		if got, ok := e.Of(r); !ok || got.String() != want {
			t.Errorf("%s: %v, %v; want %s", e.Header(), got, ok, want)
		}
	}
}

func TestZeroExtractorTrustsNoProxy(t *testing.T) {
	var e clientaddr.Extractor
	tell(t, &e, []story{{"zero", "10.0.0.1:1", lines("6.6.6.6"), "10.0.0.1"}})
	if got, ok := e.FromUnix(lines("6.6.6.6")); ok {
		t.Errorf("a Unix peer is %v", got)
	}
}

func TestUnixPeersAreTrustedOnlyWithTheOption(t *testing.T) {
	for _, c := range []struct {
		trusted bool
		lines   []string
		want    string
	}{
		{false, lines("198.51.100.7"), ""},
		{false, nil, ""},
		{true, lines("198.51.100.7"), "198.51.100.7"},
		{true, lines("6.6.6.6, 198.51.100.7, 10.0.0.2"), "198.51.100.7"},
		{true, nil, ""},
		{true, lines("6.6.6.6, junk"), ""},
		{true, lines("6.6.6.6, junk, 10.0.0.2"), "10.0.0.2"},
	} {
		e := extractor(t)
		if c.trusted {
			e = extractor(t, clientaddr.WithTrustedUnix())
		}
		got, ok := e.FromUnix(c.lines)
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("trusted %v, %q: %v, %v; want %q", c.trusted, c.lines, got, ok, c.want)
		}
	}
}

// serve answers with the client's address, on a real listener.
func serve(t *testing.T, e *clientaddr.Extractor, network, address string) (get func(lines ...string) string) {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, ok := e.Of(r)
		seen <- fmt.Sprint(client, " ", ok)
	}))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, listener.Addr().String())
		}}}
	return func(lines ...string) string {
		request, _ := http.NewRequest("GET", "http://weir.test/", nil)
		request.Header["X-Forwarded-For"] = lines
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return <-seen
	}
}

func TestRealListeners(t *testing.T) {
	local, err := clientaddr.New(prefixes("127.0.0.0/8"), clientaddr.WithTrustedUnix())
	if err != nil {
		t.Fatal(err)
	}
	var none clientaddr.Extractor
	for _, c := range []struct {
		name    string
		e       *clientaddr.Extractor
		network string
		lines   []string
		want    string
	}{
		{"trusted", local, "tcp", lines("6.6.6.6", "198.51.100.7", "127.0.0.2"), "198.51.100.7 true"},
		{"none is trusted", &none, "tcp", lines("6.6.6.6"), "127.0.0.1 true"},
		{"trusted", local, "unix", lines("6.6.6.6", "198.51.100.7"), "198.51.100.7 true"},
		{"none is trusted", &none, "unix", lines("6.6.6.6"), "invalid IP false"},
	} {
		address := "127.0.0.1:0"
		if c.network == "unix" {
			address = filepath.Join(t.TempDir(), "s")
		}
		if got := serve(t, c.e, c.network, address)(c.lines...); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.network, c.name, got, c.want)
		}
	}
}

// Middleware may copy a header into RemoteAddr: a text like that of a Unix socket there has no
// effect.
func TestRemoteAddrCannotClaimToBeUnix(t *testing.T) {
	e := extractor(t, clientaddr.WithTrustedUnix())
	for _, peer := range []string{"@", "", "/run/proxy.sock", "unix:"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = peer
		r.Header.Set("X-Forwarded-For", "6.6.6.6")
		if got, ok := e.Of(r); ok {
			t.Errorf("RemoteAddr %q: %v", peer, got)
		}
	}
}

func TestTrusts(t *testing.T) {
	e, err := clientaddr.New(prefixes("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "::ffff:172.16.0.0/108",
		"2001:db8::/32", "2001:db8:1::/48", "10.0.0.0/8", "11.0.0.0/32"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"9.255.255.255": false, "10.0.0.0": true, "10.1.2.2": true, "10.1.2.4": true, "10.255.255.255": true,
		"11.0.0.0": true, "11.0.0.1": false,
		"::ffff:10.9.9.9": true, "172.16.0.1": true, "172.31.255.255": true, "172.32.0.0": false,
		"::ffff:172.31.0.1": true,
		"2001:db7:ffff::":   false, "2001:db8::": true, "2001:db8:1::1": true, "2001:db8:2::1%eth0": true,
		"2001:db9::": false,
		"0.0.0.0":    false, "255.255.255.255": false, "::": false, "::a00:1": false,
	} {
		if got := e.Trusts(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if e.Trusts(netip.Addr{}) {
		t.Error("no address at all is trusted")
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		prefix netip.Prefix
		says   string
	}{
		{netip.Prefix{}, "trusted[1] is invalid Prefix; allowed: an address and a length"},
		{netip.MustParsePrefix("0.0.0.0/0"), "trusted[1] is 0.0.0.0/0; allowed: the networks of your proxies"},
		{netip.MustParsePrefix("::/0"), "trusting all addresses"},
		{netip.MustParsePrefix("::ffff:0.0.0.0/96"), "trusting all addresses"},
		{netip.MustParsePrefix("::ffff:0.0.0.0/90"), "at least /96"},
		{netip.MustParsePrefix("10.1.2.3/8"), "allowed: 10.0.0.0/8 for that network, 10.1.2.3/32 for that one machine"},
		{netip.MustParsePrefix("fd00::1/8"), "allowed: fd00::/8 for that network, fd00::1/128 for that one machine"},
	} {
		_, err := clientaddr.New([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), c.prefix})
		var input *weir.InputError
		if !errors.As(err, &input) || !strings.Contains(err.Error(), c.says) || input.Field != "trusted[1]" {
			t.Errorf("%v: %v", c.prefix, err)
		}
	}
	_, err := clientaddr.New(make([]netip.Prefix, 2), clientaddr.WithHeader("x-client-ip"))
	for _, says := range []string{
		`header is "X-Client-Ip"; allowed: X-Forwarded-For, Forwarded, X-Real-IP or CF-Connecting-IP`,
		"trusted[0]", "trusted[1]",
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %s", err, says)
		}
	}
}

func TestNewCopiesItsArguments(t *testing.T) {
	given := prefixes("10.0.0.0/8", "9.0.0.0/8")
	e, err := clientaddr.New(given)
	if err != nil || given[0] != netip.MustParsePrefix("10.0.0.0/8") {
		t.Fatalf("%v; the caller's slice is now %v", err, given)
	}
	given[0], given[1] = netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.0.2.0/24")
	if !e.Trusts(netip.MustParseAddr("10.0.0.1")) || e.Trusts(netip.MustParseAddr("192.0.2.1")) {
		t.Error("the extractor changed with its caller's slice")
	}
}

func TestOfAllocatesNothing(t *testing.T) {
	list, pairs := extractor(t, clientaddr.WithTrustedUnix()), extractor(t, clientaddr.WithHeader("Forwarded"))
	plain := lines("6.6.6.6, 198.51.100.7:80", "[fd00::2%eth0]:80, ::ffff:10.0.0.2")
	written := lines(`for=6.6.6.6, for="[2001:db8::7]:80";proto=https`, `for=10.0.0.2;by="_x"`)
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:1"
	r.Header["X-Forwarded-For"] = plain
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{}))
	for name, call := range map[string]func() (netip.Addr, bool){
		"Of":              func() (netip.Addr, bool) { return list.Of(r) },
		"no proxy":        func() (netip.Addr, bool) { return list.From("198.51.100.7:1", plain) },
		"X-Forwarded-For": func() (netip.Addr, bool) { return list.From("[fe80::1%eth0]:1", plain) },
		"Forwarded":       func() (netip.Addr, bool) { return pairs.From("10.0.0.1:1", written) },
		"Unix":            func() (netip.Addr, bool) { return list.FromUnix(plain) },
	} {
		if client, ok := call(); !ok || list.Trusts(client) {
			t.Errorf("%s: %v, %v", name, client, ok)
		}
		if allocs := testing.AllocsPerRun(100, func() { call() }); allocs != 0 {
			t.Errorf("%s allocates %v times", name, allocs)
		}
	}
}

func TestHeadersOfOneAddress(t *testing.T) {
	for _, name := range []string{"X-Real-IP", "cf-connecting-ip"} {
		tell(t, extractor(t, clientaddr.WithHeader(name)), []story{
			{"from an untrusted peer", "198.51.100.7:1234", lines("6.6.6.6"), "198.51.100.7"},
			{"a proxy's", "10.0.0.1:1", lines(" 198.51.100.7 "), "198.51.100.7"},
			{"of IPv6", "10.0.0.1:1", lines("2001:db8::7"), "2001:db8::7"},
			{"mapped", "10.0.0.1:1", lines("::ffff:198.51.100.7"), "198.51.100.7"},
			{"itself trusted", "10.0.0.1:1", lines("10.0.0.9"), "10.0.0.9"},
			{"none", "10.0.0.1:1", nil, "10.0.0.1"},
			{"empty", "10.0.0.1:1", lines(""), "10.0.0.1"},
			{"garbage", "10.0.0.1:1", lines("junk"), "10.0.0.1"},
			{"two in one line", "10.0.0.1:1", lines("6.6.6.6, 198.51.100.7"), "10.0.0.1"},
			{"two lines", "10.0.0.1:1", lines("6.6.6.6", "198.51.100.7"), "10.0.0.1"},
			{"long", "10.0.0.1:1", lines(strings.Repeat(" ", 600) + "6.6.6.6"), "10.0.0.1"},
		})
	}
}

func TestTrustInAllAddressesIsRefused(t *testing.T) {
	for _, tt := range []struct {
		list    []netip.Prefix
		refused bool
	}{
		{prefixes("0.0.0.0/1", "128.0.0.0/1"), true},
		{prefixes("128.0.0.0/2", "0.0.0.0/1", "192.0.0.0/2"), true},
		{prefixes("10.0.0.0/8", "::/1", "8000::/1"), true},
		{prefixes("::/1", "8000::/1", "0.0.0.0/1", "8000::/2"), true},
		{prefixes("0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/3", "224.0.0.0/4"), false}, // not 240.0.0.0/4
		{prefixes("128.0.0.0/1", "::/1"), false},
		{prefixes("0.0.0.0/1", "8000::/1"), false},
		{prefixes("1.0.0.0/8", "128.0.0.0/1"), false},
	} {
		_, err := clientaddr.New(tt.list)
		if (err != nil) != tt.refused {
			t.Errorf("%v: %v", tt.list, err)
		}
	}
}
