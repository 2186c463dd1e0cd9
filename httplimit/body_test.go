package httplimit_test

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/webvalues"
)

const (
	byBody  = "  - {name: login, match: {path: /login}, key: [body.user], on_missing: skip, algorithm: sliding_log, limit: 1/1m}"
	aForm   = "application/x-www-form-urlencoded"
	hugeKey = "p="
)

// echo answers with the length and the digest of the body that the handler gets.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%d %x %v", len(body), sha256.Sum256(body), err)
})

// TestKeysOfBodies: one user has one count, whatever the format; a body that services read differently is refused; and
// the handler gets each byte.
func TestKeysOfBodies(t *testing.T) {
	huge := hugeKey + strings.Repeat("x", 200_000)
	const asJSON = "application/json"
	for _, test := range []struct {
		path, media, body string
		want              int
	}{
		{"/login", aForm, "user=ann", 429}, {"/login", asJSON, `{"user":"ann"}`, 429}, {"/login", aForm, "user=bob", 200},
		{"/login", aForm, "user=bob&user=ann", 400}, {"/login", asJSON, `{"user":"bob","user":"ann"}`, 400},
		{"/login", asJSON, `user`, 400}, {"/login", aForm, "", 200}, {"/login", "", "", 200}, {"/login", "", "user=ann", 400},
		{"/login", "multipart/form-data; boundary=x", "--x--", 400}, {"/login", aForm, huge, 400},
		{"/login", aForm, "user=bob&" + huge[:60_000], 200}, {"/other", aForm, huge, 200}, {"/other", "text/plain", huge, 200},
	} {
		for _, chunked := range []bool{false, true} {
			s := httptest.NewServer(byRules(t, newClock().store(), byBody, nil)(echo))
			send := func(path, media, body string) (status int, answer string) {
				var content io.Reader = strings.NewReader(body)
				if chunked {
					content = io.MultiReader(content) // of an unknown length
				}
				r, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL+path, content)
				r.Header.Set("Content-Type", media)
				got, err := s.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer got.Body.Close()
				text, _ := io.ReadAll(got.Body)
				return got.StatusCode, string(text)
			}
			if status, text := send("/login", aForm, "user=ann"); status != 200 {
				t.Fatal(status, text)
			}
			status, text := send(test.path, test.media, test.body)
			whole := fmt.Sprintf("%d %x <nil>", len(test.body), sha256.Sum256([]byte(test.body)))
			// A body of an unknown length that is not read may be empty.
			want := test.want
			if chunked && test.media == "" {
				want = 400
			}
			if status != want || status == 200 && text != whole {
				t.Errorf("%s %s %.40q, chunked %t: %d %s, want %d", test.path, test.media, test.body, chunked, status, text, want)
			}
			s.Close()
		}
	}
}

// TestBodiesThatAreWaitedFor: a client that waits for 100 gets it, and one that sends nothing more is refused in the
// end.
func TestBodiesThatAreWaitedFor(t *testing.T) {
	s := httptest.NewServer(byRules(t, newClock().store(), byBody, nil)(echo))
	defer s.Close()
	for _, test := range []struct {
		head  string
		time  time.Duration
		wants []string
	}{
		{"Expect: 100-continue\r\nContent-Length: 8", time.Minute, []string{"HTTP/1.1 100", "HTTP/1.1 200"}},
		{"Content-Length: 9", 50 * time.Millisecond, []string{"HTTP/1.1 400"}},
	} {
		httplimit.SetBodyTime(t, test.time)
		head, wants := test.head, test.wants
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /login HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\n%s\r\n\r\n", aForm, head)
		answers := bufio.NewReader(conn)
		for i, want := range wants {
			if i == len(wants)-1 {
				io.WriteString(conn, "user=bob")
			}
			line, err := answers.ReadString('\n')
			if !strings.HasPrefix(line, want) {
				t.Errorf("%s: %q %v, want %s", head, line, err, want)
			}
			answers.ReadString('\n')
		}
	}
}

// TestBodyIsReadForRulesThatNeedIt: other requests stream.
func TestBodyIsReadForRulesThatNeedIt(t *testing.T) {
	for path, want := range map[string]int{"/login": webvalues.MaxBody + 1, "/other": 0} {
		counted := &countedBody{Reader: strings.NewReader(strings.Repeat("x", 1<<20))}
		r := httptest.NewRequest("POST", path, counted)
		r.Header.Set("Content-Type", aForm)
		read := -1
		byRules(t, newClock().store(), byBody, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { read = counted.n })).
			ServeHTTP(httptest.NewRecorder(), r)
		if read = max(read, counted.n); read != want {
			t.Errorf("%s: %d bytes were read before the decision, want %d", path, read, want)
		}
	}
}

type countedBody struct {
	io.Reader
	n int
}

func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}
