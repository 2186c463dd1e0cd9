package listen_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/server/internal/listen"
)

// dial opens a connection and leaves it idle.
func dial(t testing.TB, l net.Listener) net.Conn {
	t.Helper()
	conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// hungUp reports whether the server has closed the connection.
func hungUp(t testing.TB, conn net.Conn) bool {
	t.Helper()
	_, err := conn.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// answered reports whether a request on a new connection gets a response.
func answered(t testing.TB, l net.Listener) bool {
	t.Helper()
	conn := dial(t, l)
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	text, _ := io.ReadAll(conn)
	return strings.HasPrefix(string(text), "HTTP/1.1 404")
}

// TestConnectionLimit: slow clients take all places. The end of a connection, by the client or by a
// timeout, frees a place.
func TestConnectionLimit(t *testing.T) {
	for name, config := range map[string]listen.Config{
		"TCP": {}, "a Unix socket": {Address: "unix://" + filepath.Join(t.TempDir(), "s")},
		"behind a balancer": {ProxyProtocol: true, Trusted: prefixes("192.0.2.1/32")},
	} {
		t.Run(name, func(t *testing.T) {
			var log redistest.Log
			config.Connections, config.Log = 2, slog.New(slog.NewTextHandler(&log, nil))
			l := open(t, config)
			server := &http.Server{Handler: http.NotFoundHandler()} // without timeouts
			go server.Serve(l)
			t.Cleanup(func() { server.Close() })
			slow := []net.Conn{dial(t, l), dial(t, l)}
			for _, conn := range slow {
				io.WriteString(conn, "GET / HTTP/1.1\r\n") // an incomplete header
			}
			for range 50 {
				if !hungUp(t, dial(t, l)) {
					t.Fatal("a third connection is open")
				}
			}
			if n := strings.Count(log.String(), "new connections are closed"); n != 1 || !strings.Contains(log.String(), "connections=2") {
				t.Errorf("logged %d times:\n%s", n, log.String())
			}
			slow[0].Close()
			redistest.Await(t, "room", func() bool { return answered(t, l) })
			redistest.Await(t, "room again", func() bool { return answered(t, l) }) // answered connections are closed, too
		})
	}
}

// TestConnectionCounts: a failed handshake and a double close keep the count right.
func TestConnectionCounts(t *testing.T) {
	a := newAuthority(t, "ca")
	config := config(a, "server")
	config.Connections = 1
	l := serve(t, open(t, config))
	for range 3 {
		conn := dial(t, l)
		io.WriteString(conn, "this is not TLS\r\n")
		io.ReadAll(conn)
		conn.Close()
		redistest.Await(t, "an answer by HTTP/2", func() bool {
			client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.Pool()}, ForceAttemptHTTP2: true}}
			defer client.CloseIdleConnections()
			answer, err := client.Get("https://" + l.Addr().String())
			if err != nil {
				return false
			}
			defer answer.Body.Close()
			return answer.ProtoMajor == 2
		})
	}
	plain := open(t, listen.Config{Connections: 1})
	accepted := make(chan net.Conn)
	go func() {
		for {
			conn, err := plain.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial(t, plain)
	first := <-accepted
	if _, ok := first.(interface{ CloseWrite() error }); !ok {
		t.Error("net/http cannot close one half of a connection")
	}
	first.Close()
	first.Close()
	dial(t, plain)
	<-accepted
	if !hungUp(t, dial(t, plain)) {
		t.Error("closing one twice made room for two")
	}
}

// from sends the beginning of a request whose client a PROXY header names.
func from(t testing.TB, l net.Listener, client string) net.Conn {
	t.Helper()
	conn := dial(t, l)
	family := "TCP4"
	if strings.Contains(client, ":") {
		family = "TCP6"
	}
	fmt.Fprintf(conn, "PROXY %s %s %s 4711 80\r\nGET / HTTP/1.1\r\n", family, client, client)
	return conn
}

// stays reports whether the rest of a request is answered.
func stays(conn net.Conn) bool {
	io.WriteString(conn, "Host: localhost\r\n\r\n")
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return strings.HasPrefix(line, "HTTP/1.1 200")
}

// TestConnectionsOfOneAddress: one client cannot shut out the others, be its addresses those of the connections or
// those that a balancer names.
func TestConnectionsOfOneAddress(t *testing.T) {
	var log redistest.Log
	exempt := func(a netip.Addr) bool { return a == netip.MustParseAddr("203.0.113.9") }
	counts := new(listen.Counts)
	l := serve(t, open(t, listen.Config{ProxyProtocol: true, Trusted: prefixes("127.0.0.0/8"), Connections: 10, PerAddress: 2,
		Exempt: func(a netip.Addr) bool { return a.IsLoopback() || exempt(a) }, Counts: counts,
		Log: slog.New(slog.NewTextHandler(&log, nil))}))
	first := from(t, l, "198.51.100.7")
	if !stays(first) { // headers are read concurrently: now it has its place
		t.Fatal("the first connection was not answered")
	}
	for _, c := range []struct {
		client string
		stays  bool
	}{
		{"198.51.100.7", true}, {"198.51.100.7", false}, {"::ffff:198.51.100.7", false}, {"198.51.100.8", true},
		{"2001:db8::1", true}, {"2001:db8::2", true}, {"2001:db8:0:0:ffff::", false}, {"2001:db8:0:1::1", true},
		{"203.0.113.9", true}, {"203.0.113.9", true}, {"203.0.113.9", true},
	} {
		if got := stays(from(t, l, c.client)); got != c.stays {
			t.Errorf("a connection of %s stays: %v", c.client, got)
		}
	}
	if got := counts.Refused(); got != 3 {
		t.Errorf("%d connections are counted as refused, want 3", got)
	}
	if n := strings.Count(log.String(), "one address has its share"); n != 1 || !strings.Contains(log.String(), "client=198.51.100.7") {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	first.Close()
	redistest.Await(t, "a place of the address", func() bool { return stays(from(t, l, "198.51.100.7")) })

	direct := serve(t, open(t, listen.Config{Connections: 10, PerAddress: 1}))
	dial(t, direct)
	if !hungUp(t, dial(t, direct)) {
		t.Error("a second connection of 127.0.0.1 is open")
	}
}

// TestReservedConnections: a full listener accepts a few more connections, of which one address may have half, and
// ends them soon.
func TestReservedConnections(t *testing.T) {
	for name, config := range map[string]listen.Config{
		"TCP": {}, "a Unix socket": {Address: "unix://" + filepath.Join(t.TempDir(), "s")},
	} {
		t.Run(name, func(t *testing.T) {
			counts := new(listen.Counts)
			config.Connections, config.Reserve, config.Counts = 1, 3, counts
			l := open(t, config)
			accepted := make(chan net.Conn, 8)
			go func() {
				for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
					accepted <- conn
				}
			}()
			dial(t, l)
			if listen.Of(<-accepted).Reserved() {
				t.Error("the first connection is reserved")
			}
			most := 2 // of one address
			if name != "TCP" {
				most = 3
			}
			var probes []net.Conn
			for range most {
				probes = append(probes, dial(t, l))
				if !listen.Of(<-accepted).Reserved() {
					t.Error("beyond the maximum it is not")
				}
			}
			if !hungUp(t, dial(t, l)) || counts.Refused() != 1 {
				t.Errorf("beyond the reserve it is open, %d are refused", counts.Refused())
			}
			for _, probe := range probes {
				if !hungUp(t, probe) { // by the server, after a while
					t.Error("a reserved connection stays")
				}
			}
			redistest.Await(t, "room", func() bool { return counts.Open() == 1 })
			if got, want := counts.Refused(), int64(1+most); got != want {
				t.Errorf("%d connections are refused, want %d: those that asked for nothing, too", got, want)
			}
		})
	}
}
