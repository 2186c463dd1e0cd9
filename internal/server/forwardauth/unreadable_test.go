package forwardauth_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// An unreadable has the bytes of a request that a proxy or weir may reject as malformed.
type unreadable struct{ name, bytes string }

// unreadables are requests that must be limited or refused, and never served because weir could not
// read them.
func unreadables() (all []unreadable) {
	add := func(name, head string) {
		all = append(all, unreadable{name, head + "Connection: close\r\n\r\n"})
	}
	const line = "GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\n"
	for b := range 256 {
		add(fmt.Sprintf("byte %#x in a value", b), line+"X-A: a"+string([]byte{byte(b)})+"z\r\n")
		add(fmt.Sprintf("byte %#x in a name", b), line+"X-A"+string([]byte{byte(b)})+"z: a\r\n")
		add(fmt.Sprintf("byte %#x in a known value", b), line+"Cookie: a="+string([]byte{byte(b)})+"\r\n")
		add(fmt.Sprintf("byte %#x in the path", b), "GET /a"+string([]byte{byte(b)})+"z HTTP/1.1\r\nHost: 127.0.0.1\r\n")
		add(fmt.Sprintf("byte %#x in the query", b), "GET /a?b="+string([]byte{byte(b)})+"z HTTP/1.1\r\nHost: 127.0.0.1\r\n")
		add(fmt.Sprintf("byte %#x in the method", b), "GE"+string([]byte{byte(b)})+"T /a HTTP/1.1\r\nHost: 127.0.0.1\r\n")
		add(fmt.Sprintf("byte %#x in the host", b), "GET /a HTTP/1.1\r\nHost: 127.0.0.1"+string([]byte{byte(b)})+"\r\n")
	}
	for _, host := range []string{"", "Host: \r\n", "Host: x\r\nHost: y\r\n", "Host: x y\r\n", "Host: [::1\r\n", "Host: x:y\r\n", "Host: x/y\r\n", "Host: u@x\r\n", "Host: x, y\r\n"} {
		add(fmt.Sprintf("host %q", host), "GET /a HTTP/1.1\r\n"+host)
	}
	for _, target := range []string{"*", "a", "//", "/%zz", "/a%", "/%00", "/a%2fb", "/..;/a", "/a#b", "http://x/a", "http:///a", "http://[/a", "x:a", "/" + strings.Repeat("a", 8000)} {
		add(fmt.Sprintf("target %.20q", target), "GET "+target+" HTTP/1.1\r\nHost: 127.0.0.1\r\n")
	}
	for _, field := range []string{"Expect: 100-continue", "Expect: other", "Upgrade: h2c", "Upgrade: websocket", "Transfer-Encoding: other", "Transfer-Encoding: chunked, chunked",
		"Content-Length: x", "Content-Length: -1", "Content-Length: 1\r\nContent-Length: 2", "Content-Length: 99999999999999999999", "TE: trailers", "Trailer: Content-Length",
		"HTTP2-Settings: x", " folded: x", ": nameless", "X-A : blank", "X-A", "X-A: a\r\n folded", "Connection: X-Forwarded-Uri, X-Forwarded-Method, X-Forwarded-Host, X-Forwarded-For"} {
		add(fmt.Sprintf("field %q", field), line+field+"\r\n")
	}
	for _, size := range []int{4 << 10, 8 << 10, 15 << 10, 20 << 10, 31 << 10, 60 << 10, 70 << 10, 130 << 10, 300 << 10, 900 << 10} {
		add(fmt.Sprintf("a field of %d bytes", size), line+"X-A: "+strings.Repeat("a", size)+"\r\n")
		add(fmt.Sprintf("fields of %d bytes", size), line+strings.Repeat("X-A: "+strings.Repeat("a", 993)+"\r\n", size/1000))
		add(fmt.Sprintf("%d short fields", size/8), line+strings.Repeat("X-A: a\r\n", size/8))
	}
	return all
}

// noByteIsUnlimited exhausts a client's limit, and then sends every possibly unreadable request: the
// service must see none of them.
func (s *street) noByteIsUnlimited() {
	s.t.Helper()
	const from = "127.0.0.20"
	plain := s.client(from)
	for range 3 {
		plain.ask("GET", "/a", "")
	}
	s.refused("a client with nothing left", plain.ask("GET", "/a", ""))
	work := make(chan unreadable)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for u := range work {
				if status, served := s.sendRaw(from, u.bytes); served {
					s.t.Errorf("%s: served, with status %d", u.name, status)
				}
			}
		})
	}
	for _, u := range unreadables() {
		work <- u
	}
	close(work)
	workers.Wait()
	s.refused("afterwards", plain.ask("GET", "/a", ""))
}

// sendRaw sends bytes and reads one response: its status, or 0, and whether the service sent it.
func (s *street) sendRaw(from, bytes string) (status int, served bool) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(s.t.Context(), "tcp", s.proxy)
	if err != nil {
		s.t.Error(err)
		return 0, false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	go io.WriteString(conn, bytes)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, false
	}
	response.Body.Close()
	return response.StatusCode, response.Header[servedField] != nil
}
