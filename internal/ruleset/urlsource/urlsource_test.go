package urlsource

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/ruleset/rulesettest"
)

// oneRule is a file of one rule with this limit.
func set(limit string) string { return "rules:\n- name: x\n  limit: " + limit + "\n" }

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A reply is what a server says; it replaces what a real one would need a socket for.
type reply struct {
	status int
	body   string
	header map[string]string
	after  time.Duration
	err    error
}

// A rig is a source in a bubble, and its server.
type rig struct {
	*rulesettest.Followed

	mu    sync.Mutex
	now   reply
	asked []*http.Request
	times []time.Time
}

// RoundTrip answers with the reply of now.
func (r *rig) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.asked, r.times = append(r.asked, request), append(r.times, time.Now())
	now := r.now
	r.mu.Unlock()
	select {
	case <-time.After(now.after):
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
	if now.err != nil {
		return nil, now.err
	}
	response := &http.Response{StatusCode: now.status, Header: make(http.Header), Body: io.NopCloser(strings.NewReader(now.body)), Request: request}
	for name, value := range now.header {
		response.Header.Set(name, value)
	}
	etag := response.Header.Get("ETag")
	if now.status == 200 && etag != "" && request.Header.Get("If-None-Match") == etag {
		response.StatusCode, response.Body = 304, http.NoBody
	}
	return response, nil
}

func newRig(t *testing.T, first reply, opts ...Option) *rig {
	r := &rig{now: first}
	s, err := New("https://config.example.com/weir.yaml?key=secret", opts...)
	do(t, err)
	s.client.Transport = r
	r.Followed = rulesettest.Follow(t, s)
	return r
}

func (r *rig) says(now reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = now
}

// gaps are the times between requests since the last call.
func (r *rig) gaps() (list []time.Duration) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 1; i < len(r.times); i++ {
		list = append(list, r.times[i].Sub(r.times[i-1]))
	}
	r.times, r.asked = r.times[max(0, len(r.times)-1):], nil
	return list
}

func TestAChangeIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, reply{status: 200, body: set("1/1s")})
		defer r.End()
		r.Sent("1/1s")
		time.Sleep(10 * time.Minute)
		r.Sent()
		r.says(reply{status: 200, body: set("2/1s")})
		time.Sleep(40 * time.Second)
		r.Sent("2/1s")
	})
}

func TestNodesDoNotAskInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, reply{status: 200, body: set("1/1s")}, WithInterval(time.Minute))
		defer r.End()
		time.Sleep(2 * time.Hour)
		gaps := r.gaps()
		different := map[time.Duration]bool{}
		for _, gap := range gaps {
			different[gap] = true
			if gap < 45*time.Second || gap >= 75*time.Second {
				t.Errorf("it waited %v", gap)
			}
		}
		if len(different) < len(gaps)/2 || len(gaps) < 90 {
			t.Errorf("%d different waits of %d", len(different), len(gaps))
		}
	})
}

func TestUnchangedRulesAreNotSentAgain(t *testing.T) {
	const old, recent = "Sat, 21 Nov 2026 10:00:00 GMT", "Sat, 21 Nov 2026 10:00:01 GMT"
	tests := []struct {
		name      string
		header    map[string]string
		none, mod string
	}{
		{"no validators", nil, "", ""},
		{"an ETag", map[string]string{"ETag": `W/"1"`}, `W/"1"`, ""},
		{"a time", map[string]string{"Last-Modified": old, "Date": recent}, "", old},
		{"both", map[string]string{"ETag": `"1"`, "Last-Modified": old, "Date": recent}, `"1"`, old},
		{"a time in the second of the answer", map[string]string{"Last-Modified": old, "Date": old}, "", ""},
		{"a time without a date", map[string]string{"Last-Modified": old}, "", ""},
		{"a time that is none", map[string]string{"Last-Modified": "yesterday", "Date": recent}, "", ""},
		{"an ETag that could not be sent", map[string]string{"ETag": "\"\x01\""}, "", ""},
		{"an ETag too long to keep", map[string]string{"ETag": strings.Repeat("x", 2000)}, "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, reply{status: 200, body: set("1/1s"), header: test.header})
				defer r.End()
				time.Sleep(time.Minute)
				r.Sent("1/1s")
				r.mu.Lock()
				last := r.asked[len(r.asked)-1].Header
				if last.Get("If-None-Match") != test.none || last.Get("If-Modified-Since") != test.mod || r.asked[0].Header.Get("If-None-Match") != "" {
					t.Errorf("it asks %v", last)
				}
				r.mu.Unlock()
				do(t, r.Reload(t.Context())) // which believes no validators
				r.mu.Lock()
				defer r.mu.Unlock()
				if last := r.asked[len(r.asked)-1].Header; last.Get("If-None-Match")+last.Get("If-Modified-Since") != "" {
					t.Errorf("reloading asks %v", last)
				}
			})
		})
	}
}

func TestFailuresAreReportedOnceAndSlowPolling(t *testing.T) {
	tests := []struct {
		name string
		down reply
		sent string
	}{
		{"an error of the server", reply{status: 503}, "bad: https://config.example.com/weir.yaml: the server answers 503 Service Unavailable"},
		{"not found", reply{status: 404, body: set("9/1s")}, "bad: the server answers 404"},
		{"nothing in it", reply{status: 204}, "bad: the server answers 204"},
		{"not modified since never", reply{status: 304}, "bad: the server answers 304"},
		{"no connection", reply{err: errors.New("refused")}, "bad: https://config.example.com/weir.yaml: refused"},
		{"no answer", reply{after: time.Hour}, "bad: https://config.example.com/weir.yaml: no answer within 10s"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, reply{status: 200, body: set("1/1s"), header: map[string]string{"X-None": "1"}})
				defer r.End()
				r.Sent("1/1s")
				r.gaps()
				r.says(test.down)
				time.Sleep(time.Hour)
				r.Sent(test.sent)
				gaps := r.gaps()
				for i, gap := range gaps {
					least := 45 * time.Second / 2
					if i > 0 {
						least = min(time.Second<<(i-1), 5*time.Minute) * 3 / 4
					}
					if gap < least || gap > 2*least+11*time.Second {
						t.Errorf("wait %d is %v, not from %v", i, gap, least)
					}
				}
				if len(gaps) < 12 || len(gaps) > 25 {
					t.Errorf("it asked %d times in an hour", len(gaps))
				}
				if err := r.Reload(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
					t.Errorf("reloading says %v", err)
				}
				r.Sent(test.sent)
				r.says(reply{status: 200, body: set("1/1s")})
				time.Sleep(7 * time.Minute)
				r.Sent("1/1s") // so that who listens knows that it is back
				r.gaps()
				time.Sleep(10 * time.Minute)
				if n := len(r.gaps()); n < 14 {
					t.Errorf("when it is back it is asked %d times in ten minutes", n)
				}
			})
		})
	}
}

func TestBackAfterAFailureWithoutAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := reply{status: 200, body: set("1/1s"), header: map[string]string{"ETag": `"1"`}}
		r := newRig(t, good)
		defer r.End()
		r.Sent("1/1s")
		r.says(reply{status: 500})
		time.Sleep(time.Minute)
		r.Sent("bad: 500")
		r.says(good) // answers 304
		time.Sleep(2 * time.Minute)
		r.Sent("1/1s")
	})
}

func TestRetryAfterIsKept(t *testing.T) {
	for _, text := range []string{"120", "date", "99999"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				least := 2 * time.Minute
				if text == "99999" { // nobody stops it for good
					least = 5 * time.Minute
				}
				if text == "date" {
					text = time.Now().Add(least).UTC().Format(http.TimeFormat)
				}
				r := newRig(t, reply{status: 429, header: map[string]string{"Retry-After": text}})
				defer r.End()
				synctest.Wait()
				r.says(reply{status: 200, body: set("1/1s")})
				time.Sleep(least - time.Second)
				r.Sent("bad: 429")
				time.Sleep(2 * time.Second)
				r.Sent("1/1s")
			})
		})
	}
}

func TestMistakesAreReportedAndPollingGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, reply{status: 200, body: set("1/1s"), header: map[string]string{"ETag": `"1"`}})
		defer r.End()
		r.Sent("1/1s")
		for etag, body := range map[string]string{`"2"`: set("1/60"), `"3"`: "", `"4"`: "<html>Sign in</html>"} {
			r.says(reply{status: 200, body: body, header: map[string]string{"ETag": etag}})
			time.Sleep(10 * time.Minute)
			r.Sent("bad: weir.yaml:")
			r.mu.Lock()
			if n := len(r.asked); n < 14 {
				t.Errorf("asked %d times in ten minutes", n)
			}
			r.mu.Unlock()
			r.gaps()
			if err := r.Reload(t.Context()); err == nil {
				t.Error("reloading a mistake is well")
			}
			r.Sent("bad: weir.yaml:")
		}
		r.says(reply{status: 200, body: set("1/1s")})
		time.Sleep(time.Minute)
		r.Sent("1/1s")
	})
}

func TestReloadWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, reply{status: 200, body: set("1/1s")})
		r.Sent("1/1s")
		r.says(reply{after: time.Hour})
		answers := make(chan error)
		go func() { answers <- r.Reload(t.Context()) }()
		time.Sleep(time.Second)
		r.End()
		if err := <-answers; !errors.Is(err, context.Canceled) {
			t.Errorf("the answer is %v", err)
		}
		r.Sent()
	})
}

// A server runs on a real socket. get is what a source of it says.
func get(t *testing.T, s *Source) (limit string, err error) {
	t.Helper()
	n := s.Load(t.Context(), false)
	s.Close()
	if n.Err != nil {
		return "", n.Err
	}
	return n.File.Rules[0].Limit[0], nil
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func TestRedirects(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the other host is asked") })
	here := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/rules", http.StatusFound)
		case "/away":
			http.Redirect(w, r, elsewhere, http.StatusMovedPermanently)
		case "/plain":
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/circle":
			http.Redirect(w, r, "/circle", http.StatusFound)
		default:
			io.WriteString(w, set("1/1s"))
		}
	})
	token := filepath.Join(t.TempDir(), "token")
	do(t, os.WriteFile(token, []byte("abc"), 0o600))
	tests := []struct {
		path string
		want string
	}{
		{"/same", "1/1s"},
		{"/away", "name that URL instead"},
		{"/plain", "without TLS"},
		{"/file", "without TLS"},
		{"/circle", "over 5 redirects"},
	}
	for _, test := range tests {
		s, err := New(here+test.path+"?key=secret", WithTokenFile(token))
		do(t, err)
		got, err := get(t, s)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, test.want) || strings.Contains(got, "secret") {
			t.Errorf("%s: %s, not %s", test.path, got, test.want)
		}
	}
}

func TestOverTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, set("1/1s")) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	s, err := New(server.URL)
	do(t, err)
	if _, err := get(t, s); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
	s, err = New(server.URL)
	do(t, err)
	s.client.Transport = server.Client().Transport
	if limit, err := get(t, s); err != nil || limit != "1/1s" {
		t.Errorf("%s, %v", limit, err)
	}
}

func TestTheTokenIsReadEachTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer right" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		io.WriteString(w, set("1/1s"))
	})
	s, err := New(url, WithTokenFile(path))
	do(t, err)
	for _, test := range []struct{ text, want string }{
		{"", "must have one word"},
		{"two words", "must have one word"},
		{"new\nline", "must have one word"},
		{strings.Repeat("x", 9000), "must have one word"},
		{"wrong", "401"},
		{" right\n", ""},
	} {
		do(t, os.WriteFile(path, []byte(test.text), 0o600))
		limit, err := get(t, s)
		if test.want == "" && (err != nil || limit != "1/1s") {
			t.Errorf("with the right token: %v", err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || test.text != "" && strings.Contains(err.Error(), test.text)) {
			t.Errorf("with %.20q: %v, not %s", test.text, err, test.want)
		}
	}
	do(t, os.Remove(path))
	if _, err := get(t, s); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a token: %v", err)
	}
}

// bomb is a megabyte of gzip that is a gigabyte of spaces: the same piece many times.
func bomb(t *testing.T) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(bytes.Repeat([]byte{' '}, 1<<20))
	do(t, err)
	do(t, w.Close())
	return bytes.Repeat(packed.Bytes(), 1<<10)
}

func TestAnswersAreBounded(t *testing.T) {
	packed := bomb(t)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(packed)
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		case "/header":
			w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
		case "/broken":
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, set("1/1s"))
		case "/slow":
			io.WriteString(w, set("1/1s"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	for path, want := range map[string]string{
		"/bomb":    "over 8388608 bytes",
		"/endless": "over 8388608 bytes",
		"/header":  "header",
		"/broken":  "the answer breaks off", // and half of it is not believed
		"/slow":    "no answer within 200ms",
	} {
		s, err := New(url + path)
		do(t, err)
		if s.timeout = 200 * time.Millisecond; path == "/bomb" || path == "/endless" { // may take its time on a busy machine
			s.timeout = time.Minute
		}
		if _, err := get(t, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %s", path, err, want)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	tests := []struct {
		url  string
		opts []Option
		ok   bool
	}{
		{"https://config.example.com/weir.yaml?v=1", nil, true},
		{"http://127.0.0.1:8500/weir.yaml", nil, true},
		{"http://[::1]/weir.yaml", nil, true},
		{"http://localhost/weir.yaml", nil, true},
		{"http://config.example.com/weir.yaml", nil, false},
		{"http://localhost.example.com/weir.yaml", nil, false},
		{"http://127.0.0.1.example.com/weir.yaml", nil, false},
		{"http://10.0.0.1/weir.yaml", nil, false},
		{"ftp://127.0.0.1/weir.yaml", nil, false},
		{"file:///weir.yaml", nil, false},
		{"/weir.yaml", nil, false},
		{"https:///weir.yaml", nil, false},
		{"https://me:password@config.example.com/weir.yaml", nil, false},
		{"https://config.example.com/\x00password", nil, false},
		{"", nil, false},
		{"https://config.example.com/", []Option{WithInterval(time.Millisecond)}, false},
		{"https://config.example.com/", []Option{WithInterval(48 * time.Hour)}, false},
	}
	for _, test := range tests {
		_, err := New(test.url, test.opts...)
		if (err == nil) != test.ok {
			t.Errorf("%s: %v", test.url, err)
		}
		if strings.Contains(fmt.Sprint(err), "password\"") || strings.Contains(fmt.Sprint(err), "me:password") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

// No header and no body of a server panics: each is a rule set or an error.
func FuzzAnswers(f *testing.F) {
	f.Add(200, set("1/1s"), `"1"`, "Sat, 21 Nov 2026 10:00:00 GMT", "Sat, 21 Nov 2026 10:00:01 GMT", "")
	f.Add(503, "", "", "", "", "120")
	f.Add(429, "", "\x00", "x", "x", "-1")
	f.Add(200, "rules: [", "W/", "", "", "99999999999999999999")
	f.Fuzz(func(t *testing.T, status int, body, etag, modified, date, after string) {
		r := &rig{now: reply{status: status, body: body, header: map[string]string{"ETag": etag, "Last-Modified": modified, "Date": date, "Retry-After": after}}}
		s, err := New("https://config.example.com/")
		do(t, err)
		s.client.Transport = r
		first := s.Load(t.Context(), false)
		for range 2 {
			if pause := s.pause(); pause < 750*time.Millisecond || pause > 7*time.Minute {
				t.Errorf("it waits %v", pause)
			}
			if n := s.Load(t.Context(), false); n.File != first.File || n.Revision != first.Revision || fmt.Sprint(n.Err) != fmt.Sprint(first.Err) {
				t.Errorf("%+v and %+v of one answer", first, n)
			}
		}
		if n := first; (n.File == nil) == (n.Err == nil) || n.File != nil && n.Revision == "" {
			t.Errorf("the update is %+v", n)
		}
	})
}
