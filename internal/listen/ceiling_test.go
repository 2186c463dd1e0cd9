package listen_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/listen"
	"github.com/weirproject/weir/internal/redistest"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

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
			var log lines
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
