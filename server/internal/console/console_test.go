package console_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/console"
	"github.com/weirproject/weir/server/internal/openapitest"
	"github.com/weirproject/weir/server/internal/web"
)

const (
	writer = "a-token-that-may-write"
	reader = "a-token-that-may-read"
)

// open makes a console whose addresses may try 3 tokens a minute. Sessions are answered as the document says.
func open(t *testing.T, tokens ...web.Token) http.Handler {
	t.Helper()
	access, err := web.NewAccess(web.Config{Tokens: tokens, Sessions: true})
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := weir.New(memstore.New(), "login", weir.SlidingLog{Limit: 3, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.New(limiter, httplimit.PeerAddress, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := console.New(console.Config{Access: access, Ledger: true, LimitLogins: limit, Log: slog.New(slog.DiscardHandler)})
	documented := openapitest.New(t, h, (&web.API{Title: "sessions", Operations: console.Operations()}).Document(), 405)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == console.SessionPath {
			documented.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

var both = []web.Token{{Name: "ann", Secret: writer, Write: true}, {Name: "ben", Secret: reader}}

func ask(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func logIn(h http.Handler, token string, header ...string) *httptest.ResponseRecorder {
	header = append(header, "Content-Type", "application/json")
	return ask(h, http.MethodPost, console.SessionPath, `{"token":"`+token+`"}`, header...)
}

func TestPagesAreOneDocument(t *testing.T) {
	h := open(t)
	first := ask(h, http.MethodGet, "/console", "")
	for _, path := range []string{"/console/", "/console/rules/login", "/console/rules/a%2Fb", "/console/key?q=1",
		"/console/health", "/console/changes"} {
		if w := ask(h, http.MethodGet, path, ""); w.Code != 200 || w.Body.String() != first.Body.String() {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	for _, path := range []string{"/console/nothing", "/console/static/nothing.js", "/console/static/", "/console/static/../console.go",
		"/console/index.html"} {
		if w := ask(h, http.MethodGet, path, ""); w.Code == 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := ask(h, http.MethodPost, "/console", ""); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestPagesMayAskThisServerOnly(t *testing.T) {
	h := open(t)
	w := ask(h, http.MethodGet, "/console", "")
	for name, want := range map[string]string{"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'",
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Content-Type": "text/html; charset=utf-8",
		"Cache-Control": "no-cache"} {
		if got := w.Header().Get(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "frame-ancestors 'none'") ||
		strings.Contains(policy, "unsafe") {
		t.Errorf("policy: %s", policy)
	}
	if inline := regexp.MustCompile(`(?i)<script>|<style|\sstyle=|\son\w+=|https?://`).FindString(w.Body.String()); inline != "" {
		t.Errorf("the document has %q, which its own policy refuses", inline)
	}
	for name, kind := range map[string]string{"app.js": "text/javascript; charset=utf-8", "style.css": "text/css; charset=utf-8",
		"icon.svg": "image/svg+xml"} {
		if w := ask(h, http.MethodGet, "/console/static/"+name, ""); w.Header().Get("Content-Type") != kind {
			t.Errorf("%s: %q", name, w.Header().Get("Content-Type"))
		}
	}
}

func TestFilesAreSmallAndSentOnce(t *testing.T) {
	h := open(t)
	plain := ask(h, http.MethodGet, "/console/static/app.js", "")
	for _, accept := range []string{"gzip", "br, gzip;q=0.5", "deflate,gzip; q=1.0"} {
		w := ask(h, http.MethodGet, "/console/static/app.js", "", "Accept-Encoding", accept)
		z, err := gzip.NewReader(w.Body)
		if err != nil || w.Header().Get("Content-Encoding") != "gzip" || w.Header().Get("ETag") == plain.Header().Get("ETag") {
			t.Fatalf("%s: %v, %v", accept, w.Header(), err)
		}
		if text, err := io.ReadAll(z); err != nil || !bytes.Equal(text, plain.Body.Bytes()) {
			t.Errorf("%s: another file, %v", accept, err)
		}
	}
	for _, accept := range []string{"", "gzip;q=0", "gzip; q=0.0", "br", "identity"} {
		if w := ask(h, http.MethodGet, "/console/static/app.js", "", "Accept-Encoding", accept); w.Header().Get("Content-Encoding") != "" {
			t.Errorf("%q: gzip", accept)
		}
	}
	again := ask(h, http.MethodGet, "/console/static/app.js", "", "If-None-Match", plain.Header().Get("ETag"))
	if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("again: %d, %d bytes", again.Code, again.Body.Len())
	}
}

// The library is the file of npm: htm@3.1.1, preact/standalone.module.js.
func TestLibraryIsUnchanged(t *testing.T) {
	text, err := os.ReadFile("../../../internal/static/vendor/preact.js")
	if err != nil {
		t.Fatal(err)
	}
	if hash := sha256.Sum256(text); hex.EncodeToString(hash[:]) != "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7" {
		t.Errorf("the hash is %x", hash)
	}
}

func TestLogin(t *testing.T) {
	h := open(t, both...)
	if w := ask(h, http.MethodGet, console.SessionPath, ""); w.Body.String() != `{"login":true,"write":false,"logout":false,"ledger":true}`+"\n" {
		t.Errorf("before: %s", w.Body)
	}
	w := logIn(h, reader)
	cookie := w.Header().Get("Set-Cookie")
	if w.Code != http.StatusNoContent || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict") ||
		strings.Contains(cookie, "Secure") || strings.Contains(cookie, reader) {
		t.Fatalf("%d %s", w.Code, cookie)
	}
	name, _, _ := strings.Cut(cookie, ";")
	want := `{"login":false,"name":"ben","write":false,"logout":true,"ledger":true}` + "\n"
	if w := ask(h, http.MethodGet, console.SessionPath, "", "Cookie", name); w.Body.String() != want {
		t.Errorf("as ben: %s", w.Body)
	}
	if w := ask(h, http.MethodDelete, console.SessionPath, "", "Cookie", name); w.Code != http.StatusNoContent ||
		!strings.Contains(w.Header().Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("logout: %d %s", w.Code, w.Header())
	}
	if w := ask(h, http.MethodGet, console.SessionPath, "", "Cookie", name); !strings.Contains(w.Body.String(), `"login":true`) {
		t.Errorf("after logout: %s", w.Body)
	}
}

func TestCookieIsSecureOverTLS(t *testing.T) {
	server := httptest.NewTLSServer(open(t, both...))
	defer server.Close()
	answer, err := server.Client().Post(server.URL+console.SessionPath, "application/json", strings.NewReader(`{"token":"`+writer+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if cookie := answer.Header.Get("Set-Cookie"); !strings.Contains(cookie, "; Secure") {
		t.Errorf("the cookie is %q", cookie)
	}
}

func TestGuessingTokensIsLimited(t *testing.T) {
	h := open(t, both...)
	for range 3 {
		if w := logIn(h, "a-token-that-is-wrong"); w.Code != http.StatusUnauthorized {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	w := logIn(h, writer)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("the fourth attempt, with the right token: %d %v", w.Code, w.Header())
	}
	if w := ask(h, http.MethodGet, console.SessionPath, ""); w.Code != 200 {
		t.Errorf("reading is limited too: %d", w.Code)
	}
}

func TestMalformedLogins(t *testing.T) {
	for body, want := range map[string]int{
		`{"token":"` + strings.Repeat("x", 5000) + `"}`: 413, `{`: 400, `{"token":1}`: 400, `{"token":"x","more":1}`: 400, ``: 400,
		`{"token":""}`: 401,
	} {
		w := ask(open(t, both...), http.MethodPost, console.SessionPath, body, "Content-Type", "application/json")
		if w.Code != want || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("%.40q: %d %s", body, w.Code, w.Body)
		}
	}
	if w := ask(open(t, both...), http.MethodPost, console.SessionPath, `{"token":"x"}`, "Content-Type", "text/plain"); w.Code != 415 {
		t.Errorf("text/plain: %d", w.Code)
	}
	if w := ask(open(t, both...), http.MethodPut, console.SessionPath, ""); w.Code != 405 {
		t.Errorf("PUT: %d", w.Code)
	}
}

func TestOtherSitesCannotLogInOrOut(t *testing.T) {
	h := open(t, both...)
	if w := logIn(h, writer, "Sec-Fetch-Site", "cross-site"); w.Code != http.StatusForbidden {
		t.Errorf("login: %d", w.Code)
	}
	if w := ask(h, http.MethodDelete, console.SessionPath, "", "Origin", "https://evil.example"); w.Code != http.StatusForbidden {
		t.Errorf("logout: %d", w.Code)
	}
}

// A server without tokens on loopback is open to this machine, under its own names only.
func TestConsoleWithoutTokens(t *testing.T) {
	access, err := web.NewAccess(web.Config{Loopback: true, Sessions: true})
	if err != nil {
		t.Fatal(err)
	}
	none := func(next http.Handler) http.Handler { return next }
	h := console.New(console.Config{Access: access, LimitLogins: none})
	r := httptest.NewRequest(http.MethodGet, "http://localhost:8080"+console.SessionPath, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Body.String() != `{"login":false,"write":true,"logout":false,"ledger":false}`+"\n" {
		t.Errorf("%s", w.Body)
	}
	r.Host = "rebound.example"
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden {
		t.Errorf("another host name: %d", w.Code)
	}
	closed := console.New(console.Config{})
	if w := ask(closed, http.MethodGet, "/console", ""); w.Code != 200 {
		t.Errorf("without access the page cannot say why: %d", w.Code)
	}
}
