package listen_test

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/weirproject/weir/server/internal/listen"
)

const (
	get     = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	version = "PROXY TCP4 198.51.100.7 192.0.2.1 4711 80\r\n"
	sign    = "\r\n\r\n\x00\r\nQUIT\n"
)

// v2 is a header of version 2: command, family, and what follows the length.
func v2(command, family byte, block string) string {
	return sign + string([]byte{0x20 | command, family, byte(len(block) >> 8), byte(len(block))}) + block
}

const (
	block4 = "\xc6\x33\x64\x07\xc0\x00\x02\x01\x12\x67\x00\x50"
	block6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07" + "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" + "\x12\x67\x00\x50"
)

// PROXY protocol, sections 2.1, 2.2 and 4.
func TestPROXYProtocol(t *testing.T) {
	trusted := serve(t, open(t, listen.Config{ProxyProtocol: true, Trusted: prefixes("127.0.0.0/8"), HeaderTimeout: time.Minute}))
	strangers := serve(t, open(t, listen.Config{ProxyProtocol: true, Trusted: prefixes("192.0.2.0/24"), HeaderTimeout: time.Minute}))
	for _, c := range []struct {
		name     string
		listener net.Listener
		header   string
		want     string // the beginning of the request's RemoteAddr; "": connection closed
	}{
		{"version 1", trusted, version, "198.51.100.7:4711 "},
		{"version 1, IPv6", trusted, "PROXY TCP6 2001:db8::7 2001:db8::1 4711 80\r\n", "[2001:db8::7]:4711 "},
		{"version 1, mapped", trusted, "PROXY TCP6 ::ffff:198.51.100.7 ::ffff:192.0.2.1 4711 80\r\n", "198.51.100.7:4711 "},
		{"version 1, unknown", trusted, "PROXY UNKNOWN\r\n", "127.0.0.1:"},
		{"version 1, unknown with addresses", trusted, "PROXY UNKNOWN 6.6.6.6 6.6.6.6 1 2\r\n", "127.0.0.1:"},
		{"version 2", trusted, v2(1, 0x11, block4), "198.51.100.7:4711 "},
		{"version 2, IPv6", trusted, v2(1, 0x21, block6), "[2001:db8::7]:4711 "},
		{"version 2, fields beside", trusted, v2(1, 0x11, block4+"\x04\x00\x03abc"), "198.51.100.7:4711 "},
		{"version 2, junk beside", trusted, v2(1, 0x11, block4+strings.Repeat("\xff", 1000)), "198.51.100.7:4711 "},
		{"version 2, local", trusted, v2(0, 0x00, ""), "127.0.0.1:"},
		{"version 2, local with addresses", trusted, v2(0, 0x11, block4), "127.0.0.1:"},

		{"none", trusted, "", ""},
		{"a second one is no request", trusted, version + version, "400"},
		{"a zone", trusted, "PROXY TCP6 fe80::1%eth0 2001:db8::1 4711 80\r\n", ""},
		{"a port too many", trusted, "PROXY TCP4 198.51.100.7 192.0.2.1 4711 65536\r\n", ""},
		{"leading zeros", trusted, "PROXY TCP4 198.051.100.7 192.0.2.1 4711 80\r\n", ""},
		{"a name", trusted, "PROXY TCP4 localhost 192.0.2.1 4711 80\r\n", ""},
		{"more words", trusted, "PROXY TCP4 198.51.100.7 192.0.2.1 4711 80 90\r\n", ""},
		{"line feed alone", trusted, "PROXY TCP4 198.51.100.7 192.0.2.1 4711 80\n", ""},
		{"too long", trusted, "PROXY UNKNOWN " + strings.Repeat("x", 200) + "\r\n", ""},
		{"small letters", trusted, strings.ToLower(version), ""},
		{"version 3", trusted, strings.Replace(v2(1, 0x11, block4), "\x21\x11", "\x31\x11", 1), ""},
		{"another command", trusted, v2(2, 0x11, block4), ""},
		{"another family", trusted, v2(1, 0x41, block4), ""},
		{"no family", trusted, v2(1, 0x00, ""), ""},
		{"datagrams", trusted, v2(1, 0x12, block4), ""},
		{"a Unix socket", trusted, v2(1, 0x31, "/tmp/a"+strings.Repeat("\x00", 210)), ""},
		{"too short for its family", trusted, v2(1, 0x21, block4), ""},
		{"an excessive length", trusted, sign + "\x21\x11\xff\xff" + block4, ""},

		{"a stranger", strangers, "", "127.0.0.1:"},
		{"a stranger lies", strangers, version, ""},
		{"a stranger lies in version 2", strangers, v2(1, 0x11, block4), ""},
		{"a stranger is local", strangers, v2(0, 0x00, ""), ""},
		{"a stranger is unknown", strangers, "PROXY UNKNOWN\r\n", ""},
	} {
		answer := ask(t, c.listener, c.header, get)
		_, body, _ := strings.Cut(answer, "\r\n\r\n")
		if c.want == "400" && strings.HasPrefix(answer, "HTTP/1.1 400 ") {
			continue
		}
		if c.want == "" && answer != "" || !strings.HasPrefix(body, c.want) {
			t.Errorf("%s: %q, want %q", c.name, answer, c.want)
		}
	}
}

func TestSlowPROXYHeaderTimesOut(t *testing.T) {
	trusted := serve(t, open(t, listen.Config{ProxyProtocol: true, Trusted: prefixes("127.0.0.0/8"), HeaderTimeout: 20 * time.Millisecond}))
	for _, header := range []string{"", "P", "PRO", "PROXY TCP4 198.51", sign[:7], sign, v2(1, 0x11, block4)[:20]} {
		if answer := ask(t, trusted, header); answer != "" { // and then nothing more
			t.Errorf("%q is answered %q", header, answer)
		}
	}
	strangers := serve(t, open(t, listen.Config{ProxyProtocol: true, Trusted: prefixes("192.0.2.0/24"), HeaderTimeout: 20 * time.Millisecond}))
	connection, err := net.Dial("tcp", strangers.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(time.Minute))
	connection.Write([]byte("PRO")) // an untrusted peer that waits until the header timeout
	time.AfterFunc(60*time.Millisecond, func() { connection.Write([]byte(version[3:] + get)) })
	answer := make([]byte, 1000)
	if n, _ := connection.Read(answer); bytes.Contains(answer[:n], []byte("198.51.100.7")) || n > 0 && !bytes.HasPrefix(answer, []byte("HTTP/1.1 400 ")) {
		t.Errorf("%s", answer[:n])
	}
}

// A slow header delays no other connection.
func TestSlowPROXYHeaderBlocksNoOtherConnection(t *testing.T) {
	listener := serve(t, open(t, listen.Config{ProxyProtocol: true, Trusted: prefixes("127.0.0.0/8"), HeaderTimeout: time.Hour}))
	slow, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if answer := ask(t, listener, version, get); !strings.Contains(answer, "198.51.100.7:4711") {
		t.Errorf("%q", answer)
	}
}

func TestPROXYProtocolOnAUnixSocket(t *testing.T) {
	listener := serve(t, open(t, listen.Config{Address: "unix://" + filepath.Join(t.TempDir(), "s"), ProxyProtocol: true}))
	if answer := ask(t, listener, version, get); !strings.Contains(answer, "198.51.100.7:4711") {
		t.Errorf("%q", answer)
	}
	if answer := ask(t, listener, get); answer != "" {
		t.Errorf("without a header: %q", answer)
	}
}

// Headers as the library writes them for other programs.
func TestHeadersWrittenByTheLibrary(t *testing.T) {
	listener := serve(t, open(t, listen.Config{ProxyProtocol: true, Trusted: prefixes("127.0.0.1/32")}))
	for number := byte(1); number <= 2; number++ {
		source := &net.TCPAddr{IP: net.ParseIP("198.51.100.7"), Port: 4711}
		header, err := proxyproto.HeaderProxyFromAddrs(number, source, listener.Addr()).Format()
		if err != nil {
			t.Fatal(err)
		}
		if answer := ask(t, listener, string(header)+get); !strings.Contains(answer, "198.51.100.7:4711") {
			t.Errorf("version %d: %q", number, answer)
		}
	}
}
