package cli

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// told is a request as the tests write it: the line, then the fields without those that
// curl always sends.
func told(r *http.Request) string {
	text := r.Method + " " + r.URL.String()
	if r.Host != r.URL.Host {
		text += " host=" + r.Host
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if value := strings.Join(r.Header[name], "|"); name != "Accept" && name != "User-Agent" || value != "*/*" && value != "curl" {
			text += " " + name + "=" + value
		}
	}
	return text
}

func TestCurl(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"https://a.example/login"}, "GET https://a.example/login"},
		{[]string{"a.example/x?y=1"}, "GET http://a.example/x?y=1"},
		{[]string{"-X", "POST", "http://a/", "-H", "X-User: 42"}, "POST http://a/ X-User=42"},
		{[]string{"-XPUT", "-HX-User:42", "-HX-User: 43", "--url", "http://a/"}, "PUT http://a/ X-User=42|43"},
		{[]string{"-sSiLkv", "--compressed", "-o", "file", "-w%{http_code}", "http://a/"}, "GET http://a/"},
		{[]string{"-sXDELETE", "http://a/"}, "DELETE http://a/"},
		{[]string{"-d", "a=1", "http://a/"}, "POST http://a/ Content-Type=application/x-www-form-urlencoded"},
		{[]string{"-d", "a=1", "-X", "PATCH", "http://a/"}, "PATCH http://a/ " +
			"Content-Type=application/x-www-form-urlencoded"},
		{[]string{"--data-raw", "{}", "-H", "Content-Type: application/json", "http://a/"},
			"POST http://a/ Content-Type=application/json"},
		{[]string{"--json", "{}", "http://a/"}, "POST http://a/ Accept=application/json Content-Type=application/json"},
		{[]string{"-F", "f=@x", "http://a/"}, "POST http://a/ Content-Type=multipart/form-data"},
		{[]string{"-G", "-d", "a=1", "--data-urlencode", "b=c d", "http://a/?z=0"}, "GET http://a/?z=0&a=1&b=c+d"},
		{[]string{"-I", "http://a/"}, "HEAD http://a/"},
		{[]string{"-b", "a=1; b=2", "-b", "c=3", "http://a/"}, "GET http://a/ Cookie=a=1; b=2; c=3"},
		{[]string{"-u", "me:secret", "http://a/"}, "GET http://a/ Authorization=Basic bWU6c2VjcmV0"},
		{[]string{"http://me:secret@a/"}, "GET http://me:secret@a/ Authorization=Basic bWU6c2VjcmV0"},
		{[]string{"-A", "robot", "-e", "http://b/", "http://a/"}, "GET http://a/ Referer=http://b/ User-Agent=robot"},
		{[]string{"-H", "Host: b.example", "http://a/"}, "GET http://a/ host=b.example"},
		{[]string{"-H", "User-Agent:", "-H", "X-Empty;", "http://a/"}, "GET http://a/ X-Empty="},

		{nil, "the curl command line has 0 URLs; allowed: 1"},
		{[]string{"http://a/", "http://b/"}, "the curl command line has 2 URLs; allowed: 1"},
		{[]string{"--proxy", "http://p", "http://a/"}, "curl option --proxy is not supported"},
		{[]string{"-sx", "http://p", "http://a/"}, "curl option -x is not supported"},
		{[]string{"http://a/", "-X"}, "curl option -X needs a value"},
		{[]string{"http://a/", "--header"}, "curl option --header needs a value"},
		{[]string{"http://a/", "-H", "X-User 42"}, `the header "X-User 42" has no colon`},
		{[]string{"http://a/", "-b", "jar.txt"}, `the cookie file "jar.txt" is not read`},
		{[]string{"http://a/", "-G", "-d", "@file"}, `the data "@file" of -G is not read`},
		{[]string{"ftp://a/"}, "allowed: http://HOST or https://HOST"},
		{[]string{"http://a/%zz"}, "is not a request"},
		{[]string{"-X", "A B", "http://a/"}, "is not a request"},
	} {
		request, err := parseCurl(test.args)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = told(request)
		}
		if err == nil && got != test.want || err != nil && !strings.Contains(got, test.want) {
			t.Errorf("curl %q\ngot  %s\nwant %s", test.args, got, test.want)
		}
		if err != nil && codeOf(err) != exitUsage {
			t.Errorf("curl %q: exit %d", test.args, codeOf(err))
		}
	}
}

func FuzzCurl(f *testing.F) {
	f.Add("-X\nPOST\nhttp://a/login?x=%20\n-H\nX-User: 42\n-d\na=1")
	f.Add("-sSLG\n--data-urlencode\na=b c\nuser:pass@a.example:80/./x")
	f.Add("-HHost:\n-b\na=1\n-Iu\nme\n[::1]/")
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		request, err := parseCurl(args)
		if (request == nil) != (err != nil) {
			t.Fatalf("%v, %v", request, err)
		}
		if err == nil && (request.URL.Host == "" || request.Method == "") {
			t.Errorf("%q became %s", args, told(request))
		}
	})
}
