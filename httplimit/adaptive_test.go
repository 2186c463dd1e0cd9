package httplimit_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/httplimit"
)

func limited(t *testing.T, handler http.HandlerFunc) (*adaptive.Limiter, *httptest.Server) {
	limiter, err := adaptive.New(adaptive.Config{Min: 1, Max: 1, Classes: []adaptive.Class{{Name: "all"}, {Name: "rest"}}})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.Adaptive(limiter, func(r *http.Request) int { return len(r.Header["X-Class"]) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(limit(handler))
	t.Cleanup(server.Close)
	return limiter, server
}

func TestAdaptiveRefusesBeyondTheLimit(t *testing.T) {
	inside, leave := make(chan bool), make(chan bool)
	limiter, server := limited(t, func(http.ResponseWriter, *http.Request) { inside <- true; <-leave })
	go server.Client().Get(server.URL)
	<-inside
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != 503 || response.Header.Get("Retry-After") != "1" ||
		response.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("answered %d %v %s, want a problem with 503", response.StatusCode, response.Header, body)
	}
	leave <- true
	released(t, limiter)
}

// released waits until no request has a place.
func released(t *testing.T, limiter *adaptive.Limiter) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); limiter.State().InFlight > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a place was not given back")
		}
	}
}

func TestAdaptiveGivesPlacesBack(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"stream": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
		"websocket": func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				io.Copy(io.Discard, conn)
			}
		},
		"long response": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil { // the client does not read
				w.Write(make([]byte, 4<<10))
			}
		},
		"client that left": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			limiter, server := limited(t, handler)
			ctx, cancel := context.WithCancel(t.Context())
			r, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
			go server.Client().Do(r)
			for end := time.Now().Add(10 * time.Second); limiter.State().Classes[0].Admitted == 0; {
				if time.Now().After(end) {
					t.Fatal("the request did not begin")
				}
				time.Sleep(time.Millisecond)
			}
			if name == "client that left" {
				cancel()
			}
			released(t, limiter)
			cancel()
		})
	}
}

// A client that stops sending holds no place, and another one's request is answered meanwhile.
func TestAdaptiveSlowUploadsHoldNoPlace(t *testing.T) {
	limiter, server := limited(t, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	body, send := io.Pipe()
	defer send.Close()
	go server.Client().Post(server.URL, "text/plain", body)
	io.WriteString(send, "hello")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if s := limiter.State(); s.Classes[0].Admitted == 1 && s.InFlight == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the slow client holds its place")
		}
	}
	response, err := server.Client().Get(server.URL)
	if err != nil || response.StatusCode != 200 {
		t.Errorf("answered %v, %v; want 200", response, err)
	}
	send.Close()
	released(t, limiter)
}

// slowly is a body that takes a second.
type slowly struct{ done bool }

func (s *slowly) Read(b []byte) (int, error) {
	if s.done {
		return 0, io.EOF
	}
	time.Sleep(time.Second)
	s.done = true
	return copy(b, "hello"), nil
}

func TestAdaptiveLatencyHasNoUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := adaptive.New(adaptive.Config{Min: 1, Max: 9})
		if err != nil {
			t.Fatal(err)
		}
		limit, _ := httplimit.Adaptive(limiter, nil, nil)
		handler := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			time.Sleep(10 * time.Millisecond)
		}))
		for range 60 {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", &slowly{}))
		}
		if s := limiter.State(); s.Latency != 10*time.Millisecond || s.InFlight != 0 {
			t.Errorf("state is %+v, want a latency of 10ms", s)
		}
	})
}

// A mute is a body with a client that sends nothing until it leaves.
type mute struct{ left chan struct{} }

func (m mute) Read([]byte) (int, error) {
	<-m.left
	return 0, io.ErrUnexpectedEOF
}

// A handler that responds while one of its goroutines waits for the body gives its place back once: before the wait
// frees the place, and after.
func TestAdaptiveGivesThePlaceOfAResponseThatReadsBackOnce(t *testing.T) {
	for _, answersAfter := range []time.Duration{time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			limiter, err := adaptive.New(adaptive.Config{Min: 1, Max: 1})
			if err != nil {
				t.Fatal(err)
			}
			limit, _ := httplimit.Adaptive(limiter, nil, nil)
			client := mute{make(chan struct{})}
			handler := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				read := make(chan bool)
				go func() {
					io.Copy(io.Discard, r.Body)
					close(read)
				}()
				time.Sleep(answersAfter)
				w.(http.Flusher).Flush()
				time.Sleep(time.Second)
				if n := limiter.State().InFlight; n != 0 {
					t.Errorf("%d in flight, want none while the response is open", n)
				}
				close(client.left)
				<-read
			}))
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", client))
			if n := limiter.State().InFlight; n != 0 {
				t.Errorf("%d in flight, want none after the response", n)
			}
		})
	}
}

// A handler that ends at a deadline is too slow; a client that leaves early says nothing.
func TestAdaptiveTellsDeadlinesFromClients(t *testing.T) {
	past, end := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer end()
	left, leave := context.WithCancel(t.Context())
	leave()
	for ctx, overloaded := range map[context.Context]uint64{past: 1, left: 0} {
		limiter, err := adaptive.New(adaptive.Config{Min: 1, Max: 1})
		if err != nil {
			t.Fatal(err)
		}
		limit, _ := httplimit.Adaptive(limiter, nil, nil)
		handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		if s := limiter.State(); s.Overloaded != overloaded || s.InFlight != 0 {
			t.Errorf("after %v the state is %+v, want %d overloaded", ctx.Err(), s, overloaded)
		}
	}
}

// Windows of the start have 40 requests, after two for each of the first limit.
func TestAdaptiveCountsLatencyOfAnswersOnly(t *testing.T) {
	for status, counts := range map[int]bool{200: true, 404: true, 429: false, 500: false, 503: false} {
		limiter, err := adaptive.New(adaptive.Config{Min: 1, Max: 9})
		if err != nil {
			t.Fatal(err)
		}
		limit, _ := httplimit.Adaptive(limiter, nil, nil)
		handler := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Millisecond)
			w.WriteHeader(status)
		}))
		for range 60 {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
		if s := limiter.State(); (s.Latency > 0) != counts {
			t.Errorf("latency is %v after responses of %d", s.Latency, status)
		}
	}
}

func ExampleAdaptive() {
	limiter, err := adaptive.New(adaptive.Config{
		Min: 20, Max: 2000,
		Classes: []adaptive.Class{{Name: "critical"}, {Name: "default", Reserve: 0.2}},
		Queue:   adaptive.Queue{For: 50 * time.Millisecond, Most: 100},
	})
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.Adaptive(limiter, func(r *http.Request) int {
		if r.URL.Path == "/checkout" {
			return 0
		}
		return 1
	}, nil)
	if err != nil {
		panic(err)
	}
	shop := http.NewServeMux()
	http.Handle("/", limit(shop))
}
