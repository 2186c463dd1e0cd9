package httplimit_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/webvalues"
)

// Rules and handler read the same value of a query parameter: otherwise a request is limited by one
// value and served by another.
func FuzzQuery(f *testing.F) {
	for _, query := range []string{"", "a=1&a=2", "a", "=1", "a;b=1", "a=1;2&a=3", "%61=1", "a=%zz&a=2", "a%zz=1", "a=+%20", "+=1", "%2B=1", "a&&a=1", "a==", "&", "A=1", "a=%00", "%E4=1"} {
		f.Add(query, "a")
	}
	f.Fuzz(func(t *testing.T, query, name string) {
		values, _ := url.ParseQuery(query) // what is malformed is left out
		a := httplimit.Attributes(&http.Request{URL: &url.URL{RawQuery: query}})
		if a == nil {
			if len(values) > 0 {
				t.Fatalf("%.100q is refused, and ParseQuery reads it", query)
			}
			return
		}
		for _, name := range append([]string{name, "", "a", "+", " "}, names(values)...) {
			if got, want := a.Query(name), values.Get(name); got != want {
				t.Errorf("%q of %q is %q, ParseQuery says %q", name, query, got, want)
			}
		}
	})
}

func names(values map[string][]string) (list []string) {
	for name := range values {
		list = append(list, name)
	}
	return list
}

func FuzzCookies(f *testing.F) {
	for _, lines := range []string{"", "a=1", "a=1; a=2", "a = 1", `a="1"`, `a="`, `a="1;2"`, "a=é;a=2", "a", ";a=1;", "b=a=1\na=2", "\ta=1 ", "a=1, 2", "A=1", "a=\\;a=3"} {
		f.Add(lines)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		r := &http.Request{URL: new(url.URL), Header: http.Header{"Cookie": strings.Split(lines, "\n")}}
		a := httplimit.Attributes(r)
		if a == nil {
			if len(r.Cookies()) > 0 {
				t.Fatalf("%.100q is refused, and net/http reads it", lines)
			}
			return
		}
		for _, cookie := range r.Cookies() {
			first, err := r.Cookie(cookie.Name)
			if err != nil {
				t.Fatal(err)
			}
			want := first.Value
			if !first.Quoted {
				want = strings.Trim(want, " \t")
			}
			if plain, err := url.PathUnescape(want); err == nil {
				want = plain
			}
			if got := a.Cookie(cookie.Name); got != want && !a.(interface{ Doubtful(kind, name string) bool }).Doubtful("cookie", cookie.Name) {
				t.Errorf("%s of %q is %q, net/http says %+v", cookie.Name, lines, got, first)
			}
		}
	})
}

// The form of an accepted host is accepted again, and is its own form.
func FuzzHost(f *testing.F) {
	for _, host := range []string{"", "a", "a.", "a..", "a:80", "a.:80", "a:b:80", "[::1]", "[::1]:80", "[::1%25eth0]", "::1", "a%2e", ".", ":80", "[::ffff:1.2.3.4]", "x@y", "é"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, given string) {
		host, err := webvalues.Host(&http.Request{Host: given})
		if err != nil || given == "" {
			return
		}
		spelled := host
		if strings.Contains(host, ":") {
			spelled = "[" + host + "]"
		}
		again, err := webvalues.Host(&http.Request{Host: spelled})
		if err != nil || again != host || host == "" || strings.HasSuffix(host, ".") || len(host) > len(given) {
			t.Errorf("%q is %q, which is %q (%v)", given, host, again, err)
		}
	})
}
