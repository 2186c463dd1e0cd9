package adapttest

import (
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
)

// The lines of /stream. Responses that end after Hold end with the last one.
const (
	firstLine = "first\n"
	lastLine  = "last\n"
)

// A Service has the parts of the handlers that the suite shares. An adapter's test writes the handlers in the way of
// its framework, or takes those of Handlers:
//
//	GET  /items/ID     Item(ID)
//	GET  /status/CODE  that status, without a body
//	GET  /error/CODE   an error with that status, as the framework has them
//	GET  /cost         Cost(): the header field X-Cost and a body
//	POST /form         the body of the request
//	GET  /panic        a panic
//	GET  /hold         Hold, then Last
//	GET  /stream       First, sent at once; Hold; Last
//	GET  /hijack       Hold, then a response with Last on the connection, which is closed
type Service struct {
	calls            atomic.Int64
	entered, proceed chan struct{}
}

func newService() *Service {
	return &Service{entered: make(chan struct{}, 9), proceed: make(chan struct{})}
}

// Item is the response of /items/ID.
func (s *Service) Item(id string) string {
	s.calls.Add(1)
	return "item " + id
}

// Cost is the value of X-Cost, and the body beside it.
func (s *Service) Cost() (header, body string) { return "7", strings.Repeat("x", 700) }

// Hold blocks a handler until the test goes on.
func (s *Service) Hold() {
	s.entered <- struct{}{}
	<-s.proceed
}

// First is the first line of a stream.
func (s *Service) First() string { return firstLine }

// Last is the last line of a response.
func (s *Service) Last() string { return lastLine }

// Hijacked is the response of /hijack.
func (s *Service) Hijacked() string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(lastLine), lastLine)
}

// Handlers are the handlers for net/http, by the patterns that have {id} and {code} for the last segment.
func (s *Service) Handlers() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /items/{id}": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, s.Item(path.Base(r.URL.Path)))
		},
		"GET /status/{code}": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(Code(r.URL.Path)) },
		"GET /error/{code}":  func(w http.ResponseWriter, r *http.Request) { http.Error(w, "error", Code(r.URL.Path)) },
		"GET /cost": func(w http.ResponseWriter, _ *http.Request) {
			cost, body := s.Cost()
			w.Header().Set("X-Cost", cost)
			io.WriteString(w, body)
		},
		"POST /form": func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) },
		"GET /panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"GET /hold": func(w http.ResponseWriter, _ *http.Request) {
			s.Hold()
			io.WriteString(w, lastLine)
		},
		"GET /stream": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, firstLine)
			http.NewResponseController(w).Flush()
			s.Hold()
			io.WriteString(w, lastLine)
		},
		"GET /hijack": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			s.Hold()
			io.WriteString(conn, s.Hijacked())
		},
	}
}

// Code is the number that ends a path.
func Code(url string) int {
	code, _ := strconv.Atoi(path.Base(url))
	return code
}
