package pathform_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/pathform"
)

var (
	drop  = pathform.Form{DropTrailingSlash: true}
	fold  = pathform.Form{IgnoreCase: true}
	loose = pathform.Form{AllowEncodedSlash: true, AllowBackslash: true, AllowNUL: true}
)

func TestPath(t *testing.T) {
	var strict pathform.Form
	for _, c := range []struct {
		name      string
		form      pathform.Form
		raw, want string // want "": refused
	}{
		{"the root", strict, "/", "/"},
		{"no path", strict, "", "/"},
		{"the server itself", strict, "*", "*"},
		{"as it should be", strict, "/a/b.c/~d;e=f,g", "/a/b.c/~d;e=f,g"},
		{"every delimiter", strict, "/!$&'()*+,;=:@", "/!$&'()*+,;=:@"},

		{"two slashes", strict, "//login", "/login"},
		{"many slashes", strict, "///a////b///", "/a/b/"},
		{"only slashes", strict, "///", "/"},
		{"a dot", strict, "/./login", "/login"},
		{"dots everywhere", strict, "/./a/././b/.", "/a/b/"},
		{"two dots", strict, "/x/../login", "/login"},
		{"two dots twice", strict, "/x/y/../../login", "/login"},
		{"two dots last", strict, "/a/b/..", "/a/"},
		{"out of the root", strict, "/../../login", "/login"},
		{"only two dots", strict, "/..", "/"},
		{"slashes before dots", strict, "/a//../login", "/login"},
		{"encoded dots", strict, "/x/%2e%2E/login", "/login"},
		{"half encoded dots", strict, "/x/.%2e/%2e/login", "/login"},
		{"three dots are a name", strict, "/.../a", "/.../a"},
		{"dots before a name", strict, "/..a/.b/..", "/..a/"},
		{"a name and dots", strict, "/a../b.", "/a../b."},
		{"removed and written again", strict, "/abc/../a%62c/abd", "/abc/abd"},

		{"an encoded letter", strict, "/%6cogin", "/login"},
		{"in upper case", strict, "/%6Cogin", "/login"},
		{"all that is unreserved", strict, "/%41%5a%61%7A%30%39%2d%2E%5f%7e", "/AZaz09-._~"},
		{"delimiters stay as they are", strict, "/a%3ab:c%3Bd;", "/a%3Ab:c%3Bd;"},
		{"upper case of escapes", strict, "/%c3%a9%e2%82%ac", "/%C3%A9%E2%82%AC"},
		{"not escaped", strict, "/é |\"<>^`{}[]\xff", "/%C3%A9%20%7C%22%3C%3E%5E%60%7B%7D%5B%5D%FF"},
		{"not decoded twice", strict, "/%256c%252e%252F", "/%256c%252e%252F"},
		{"an escaped question mark is a character", strict, "/a%3fb%23", "/a%3Fb%23"},
		{"escaped controls stay", strict, "/a%0d%0a%09%7f", "/a%0D%0A%09%7F"},

		{"trailing slash kept", strict, "/login/", "/login/"},
		{"trailing slash dropped", drop, "/login/", "/login"},
		{"trailing slashes dropped", drop, "/login///", "/login"},
		{"trailing dot dropped", drop, "/login/.", "/login"},
		{"trailing dots dropped", drop, "/login/x/..", "/login"},
		{"an encoded dot dropped", drop, "/%6cogin/%2e", "/login"},
		{"the root is kept", drop, "//", "/"},
		{"the root of nothing is kept", drop, "/a/../", "/"},

		{"case kept", strict, "/LogIn", "/LogIn"},
		{"case ignored", fold, "/LogIn", "/login"},
		{"case ignored, encoded", fold, "/%4Cog%49n", "/login"},
		{"the case of escapes", fold, "/%c3%A9/%3a", "/%C3%A9/%3A"},

		{"an encoded slash", strict, "/a%2fb", ""},
		{"an encoded slash and dots", strict, "/x%2F..%2Flogin", ""},
		{"an encoded slash, allowed", loose, "/a%2fb/%2e%2e%2f", "/a%2Fb/..%2F"},
		{"a backslash", strict, `/a\b`, ""},
		{"an encoded backslash", strict, "/a%5cb", ""},
		{"backslashes, allowed", loose, `/a\b%5c..`, "/a%5Cb%5C.."},
		{"NUL", strict, "/a%00", ""},
		{"NUL, allowed", loose, "/a%00", "/a%00"},
		{"NUL as it is", loose, "/a\x00", ""},
		{"a line's end", loose, "/a\r\nb", ""},
		{"DEL", loose, "/a\x7f", ""},

		{"not hexadecimal", loose, "/a%zz", ""},
		{"half an escape", loose, "/a%2", ""},
		{"a lone %", loose, "/a%", ""},
		{"an escape across a slash", loose, "/a%2/b", ""},
		{"a sign in an escape", loose, "/a%+1", ""},
		{"UTF-16 in an escape", loose, "/a%u002f", ""},
		{"dots with parameters", loose, "/a/..;/b", ""},
		{"a dot with parameters", loose, "/a/.;x=1/b", ""},
		{"encoded dots with parameters", loose, "/a/%2e%2e;x", ""},
		{"removed dots have parameters", loose, "/a/..;/../b", ""},
		{"no slash", loose, "login", ""},
		{"an encoded slash first", loose, "%2flogin", ""},
		{"a query", loose, "/a?b", ""},
		{"a fragment", loose, "/a#b", ""},
		{"a server", loose, "http://weir.test/a", ""},
	} {
		got, err := c.form.Path(c.raw)
		var input *weir.InputError
		refused := errors.As(err, &input) && input.Field == "path" && input.Given == c.raw
		if got != c.want || refused != (c.want == "") || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q is %q, error %v; want %q", c.name, c.raw, got, err, c.want)
		}
	}
}

func TestErrorsNameTheAllowedPaths(t *testing.T) {
	for raw, says := range map[string]string{
		"/%2F": "encoded slashes (%2F)", `/\`: "backslashes", "/%00": "NUL", "/\n": "control", "/?": "without ?",
		"/%": "hexadecimal", "/..;": "parameters", "/..;/": "parameters", "x": "begins with /",
	} {
		if _, err := (pathform.Form{}).Path(raw); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func TestAFormAllocatesNothing(t *testing.T) {
	for _, raw := range []string{
		"/", "*", "/login", "/a/b.c/.well-known/..x/...", "/%C3%A9/a%3Ab/", "/" + strings.Repeat("segment/", 1000),
		"/a/b/.", "/a/b/..", // a form's beginning
	} {
		if allocs := testing.AllocsPerRun(100, func() {
			if _, err := (pathform.Form{}).Path(raw); err != nil {
				t.Fatal(err)
			}
		}); allocs != 0 {
			t.Errorf("%.40q: %v allocations", raw, allocs)
		}
	}
	u := &url.URL{Path: "/login/é"}
	allocs := testing.AllocsPerRun(100, func() { _, _ = (pathform.Form{}).Apply(&url.URL{Path: "/login"}) })
	if allocs != 0 {
		t.Errorf("Apply: %v allocations", allocs)
	}
	if form, err := (pathform.Form{}).Apply(u); form != "/login/%C3%A9" || err != nil || u.Path != "/login/é" {
		t.Errorf("Apply: %q, %v, %+v", form, err, u)
	}
}

func TestApply(t *testing.T) {
	for target, want := range map[string]string{
		"/x/../%6cogin?a=/../b": "/login?a=/../b",
		"/a%3ab%c3%a9/":         "/a%3Ab%C3%A9/",
		"/a|b/./c":              "/a%7Cb/c",
		"//login":               "/login",
		"*":                     "*",
		"/a%2fb|c":              "", // url.URL.EscapedPath is /a/b%7Cc
		"/a%2fb":                "",
		"http:login":            "", // opaque: its path is not what would be sent
	} {
		u, err := url.Parse(target)
		if strings.HasPrefix(target, "/") {
			u, err = url.ParseRequestURI(target)
		}
		if err != nil {
			t.Fatal(err)
		}
		before := *u
		form, err := (pathform.Form{}).Apply(u)
		if want == "" {
			if err == nil || *u != before {
				t.Errorf("%s: %v, and the URL is %+v", target, err, u)
			}
			continue
		}
		if err != nil || u.RequestURI() != want || form != u.EscapedPath() {
			t.Errorf("%s: %v; %s is sent, %s is matched, want %s", target, err, u.RequestURI(), form, want)
		}
	}
}

// If Path was set and an old RawPath was left, Path is sent.
func TestApplyPrefersPathToAnOldRawPath(t *testing.T) {
	u := &url.URL{Path: "/b//c", RawPath: "/a%2Fx"}
	if form, err := (pathform.Form{}).Apply(u); err != nil || form != "/b/c" || u.EscapedPath() != form {
		t.Errorf("%q, %v, %+v", form, err, u)
	}
}

// An upstream receives the matched path, byte for byte, through a real proxy.
func TestMatchedPathIsForwarded(t *testing.T) {
	received := make(chan string, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received <- r.RequestURI
	}))
	defer upstream.Close()
	to, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	matched := make(chan string, 1)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		form, err := pathform.Form{}.Apply(r.URL)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		matched <- form
		proxy.ServeHTTP(w, r)
	}))
	defer gateway.Close()
	for _, target := range []string{"//login", "/x/%2e%2e/%6cogin", "/a%3ab/é|\"[]/", "/%c3%a9/./", "/", "/a%25%32%66"} {
		request, err := http.NewRequest("GET", gateway.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.URL.Opaque = "//" + request.URL.Host + target // as it is, on the wire
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", target, response.Status)
		}
		if m, r := <-matched, <-received; m != r {
			t.Errorf("%s: %s is matched, %s is forwarded", target, m, r)
		}
	}
}

var formed = regexp.MustCompile(`^(?:\*|(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-F]{2})+)*/?)$`)

// The form of a form is itself, is well formed, and equals the path.Clean of a path
// whose characters are in their form.
func FuzzPath(f *testing.F) {
	for _, raw := range []string{
		"/a/./../b//%6c%C3%a9/", "/%2e%2E/x", "*", "", `/\%00%2f`, "/é é/../é", "/%C3%A9/../é", "/..;/", "/a/%2e;",
	} {
		for options := range 32 {
			f.Add(raw, options)
		}
	}
	f.Fuzz(func(t *testing.T, raw string, options int) {
		form := pathform.Form{
			DropTrailingSlash: options&1 > 0,
			IgnoreCase:        options&2 > 0,
			AllowEncodedSlash: options&4 > 0,
			AllowBackslash:    options&8 > 0,
			AllowNUL:          options&16 > 0,
		}
		once, err := form.Path(raw)
		if err != nil {
			return
		}
		if twice, err := form.Path(once); err != nil || twice != once {
			t.Errorf("%q is %q, which is %q, error %v", raw, once, twice, err)
		}
		if !formed.MatchString(once) || strings.Contains(once, "/./") || strings.Contains(once, "/../") {
			t.Errorf("%q is %q", raw, once)
		}
		if once != "*" && strings.TrimSuffix(once, "/") != strings.TrimSuffix(slowly(t, raw, options&2 > 0), "/") {
			t.Errorf("%q is %q; slowly, %q", raw, once, slowly(t, raw, options&2 > 0))
		}
		u := &url.URL{Path: "/other", RawPath: "/other"}
		if u.Path, err = url.PathUnescape(raw); err == nil && raw != "" {
			u.RawPath = raw
			if applied, err := form.Apply(u); err != nil || applied != once || u.EscapedPath() != once {
				t.Errorf("%q is %q, applied %q, sent %q, error %v", raw, once, applied, u.EscapedPath(), err)
			}
		}
	})
}

// An escape that is no letter is matched as a whole, so that its digits are not.
var letter = regexp.MustCompile(`%[0-9a-fA-F]{2}|[A-Z]`)

var escape = regexp.MustCompile(`(?s)%..|[^A-Za-z0-9._~!$&'()*+,;=:@/-]`)

// slowly is the form without the trailing slash, in two passes.
func slowly(t *testing.T, raw string, ignoreCase bool) string {
	t.Helper()
	if ignoreCase {
		raw = letter.ReplaceAllStringFunc(raw, func(e string) string {
			c, err := url.PathUnescape(e)
			if err != nil {
				t.Fatal(err)
			}
			if c < "A" || c > "Z" {
				return e
			}
			return strings.ToLower(c)
		})
	}
	// By bytes: regexp reads runes.
	var plain strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] >= 0x80 {
			plain.WriteString(url.PathEscape(raw[i : i+1]))
		} else {
			plain.WriteByte(raw[i])
		}
	}
	return path.Clean("/" + escape.ReplaceAllStringFunc(plain.String(), func(e string) string {
		if e[0] != '%' {
			return url.PathEscape(e)
		}
		c, err := url.PathUnescape(e)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains("-._~", c) || c[0] < 0x80 && regexp.MustCompile(`^[A-Za-z0-9]$`).MatchString(c) {
			return c
		}
		return strings.ToUpper(e)
	}))
}
