package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A curlOption is an option of curl.
type curlOption struct {
	short byte // 0: none
	long  string
	value bool // a value follows
	apply func(*curlLine, string) error
}

// A curlLine is a curl command line.
type curlLine struct {
	urls    []string
	method  string
	header  http.Header
	removed []string // headers removed by -H 'Name:'
	data    []string
	get     bool // -G: the data are parameters of the URL
	head    bool
	form    bool
}

// ignored changes nothing that a rule can see.
func ignored(*curlLine, string) error { return nil }

func setHeader(name string) func(*curlLine, string) error {
	return func(c *curlLine, value string) error { c.header.Set(name, value); return nil }
}

func addData(contentType string) func(*curlLine, string) error {
	return func(c *curlLine, value string) error {
		c.data = append(c.data, value)
		if c.header.Get("Content-Type") == "" {
			c.header.Set("Content-Type", contentType)
		}
		return nil
	}
}

func (c *curlLine) addForm(value string) error {
	c.form = true
	return addData("multipart/form-data")(c, value)
}

const formData = "application/x-www-form-urlencoded"

// curlOptions are the supported options. Any other is an error, because ignoring it might change the
// request.
func curlOptions() []curlOption {
	return []curlOption{
		{'X', "request", true, func(c *curlLine, v string) error { c.method = v; return nil }},
		{'H', "header", true, (*curlLine).addHeader},
		{'d', "data", true, addData(formData)},
		{0, "data-ascii", true, addData(formData)},
		{0, "data-binary", true, addData(formData)},
		{0, "data-raw", true, addData(formData)},
		{0, "data-urlencode", true, (*curlLine).addEncoded},
		{0, "json", true, (*curlLine).addJSON},
		{'F', "form", true, (*curlLine).addForm},
		{'b', "cookie", true, (*curlLine).addCookie},
		{'A', "user-agent", true, setHeader("User-Agent")},
		{'e', "referer", true, setHeader("Referer")},
		{'u', "user", true, (*curlLine).setUser},
		{'I', "head", false, func(c *curlLine, _ string) error { c.head = true; return nil }},
		{'G', "get", false, func(c *curlLine, _ string) error { c.get = true; return nil }},
		{0, "url", true, func(c *curlLine, v string) error { c.urls = append(c.urls, v); return nil }},
		{'k', "insecure", false, ignored}, {'s', "silent", false, ignored}, {'S', "show-error", false, ignored},
		{'i', "include", false, ignored}, {'v', "verbose", false, ignored}, {'L', "location", false, ignored},
		{'f', "fail", false, ignored}, {'N', "no-buffer", false, ignored}, {'g', "globoff", false, ignored},
		{0, "compressed", false, ignored}, {0, "path-as-is", false, ignored}, {0, "http1.1", false, ignored},
		{0, "http2", false, ignored}, {'4', "ipv4", false, ignored}, {'6', "ipv6", false, ignored},
		{'o', "output", true, ignored}, {'w', "write-out", true, ignored}, {'m', "max-time", true, ignored},
		{0, "connect-timeout", true, ignored},
	}
}

// parseCurl returns the request that curl would send with these arguments.
func parseCurl(args []string) (*http.Request, error) {
	c := &curlLine{header: http.Header{"Accept": {"*/*"}, "User-Agent": {"curl"}}}
	for len(args) > 0 {
		rest, err := c.argument(args)
		if err != nil {
			return nil, usagef("%v", err)
		}
		args = rest
	}
	request, err := c.request()
	if err != nil {
		return nil, usagef("%v", err)
	}
	return request, nil
}

// argument reads the first of args, with its value if it has one, and returns the others.
func (c *curlLine) argument(args []string) (rest []string, err error) {
	first, rest := args[0], args[1:]
	switch {
	case strings.HasPrefix(first, "--"):
		return c.long(first[2:], rest)
	case len(first) > 1 && first[0] == '-':
		return c.short(first[1:], rest)
	}
	c.urls = append(c.urls, first)
	return rest, nil
}

func (c *curlLine) long(name string, rest []string) ([]string, error) {
	rest, _, err := c.option("--"+name, func(o *curlOption) bool { return o.long == name }, "", rest)
	return rest, err
}

// short reads letters that stand together, as in -sSX POST or -XPOST.
func (c *curlLine) short(letters string, rest []string) (_ []string, err error) {
	for i, value := 0, false; i < len(letters) && !value && err == nil; i++ {
		is := func(o *curlOption) bool { return o.short == letters[i] }
		rest, value, err = c.option("-"+letters[i:i+1], is, letters[i+1:], rest)
	}
	return rest, err
}

// option reads an option, whose value is given beside it, or is the first of rest.
func (c *curlLine) option(name string, is func(*curlOption) bool, beside string, rest []string) (
	_ []string, value bool, err error) {
	options := curlOptions()
	i := slices.IndexFunc(options, func(o curlOption) bool { return is(&o) })
	switch {
	case i < 0:
		return nil, false, fmt.Errorf("curl option %s is not supported; leave it out if it does not change the request",
			name)
	case !options[i].value:
		return rest, false, options[i].apply(c, "")
	case beside != "":
		return rest, true, options[i].apply(c, beside)
	case len(rest) == 0:
		return nil, true, fmt.Errorf("curl option %s needs a value", name)
	}
	return rest[1:], true, options[i].apply(c, rest[0])
}

// addHeader reads "Name: value"; "Name:" takes away what curl would send, "Name;" sends
// an empty one.
func (c *curlLine) addHeader(text string) error {
	name, value, ok := strings.Cut(text, ":")
	if !ok {
		if name, ok = strings.CutSuffix(text, ";"); !ok {
			return fmt.Errorf("the header %.80q has no colon; write 'Name: value'", text)
		}
		c.header.Add(name, "")
		return nil
	}
	value = strings.TrimSpace(value)
	if value == "" {
		c.removed = append(c.removed, name)
		return nil
	}
	switch http.CanonicalHeaderKey(name) {
	case "Accept", "User-Agent", "Content-Type":
		c.header.Set(name, value) // replaces curl's own header
		return nil
	}
	c.header.Add(name, value)
	return nil
}

// addCookie reads "a=1; b=2". A text without = is the name of a cookie file.
func (c *curlLine) addCookie(text string) error {
	if !strings.Contains(text, "=") {
		return fmt.Errorf("the cookie file %.80q is not read; write -b 'name=value'", text)
	}
	if before := c.header.Get("Cookie"); before != "" {
		text = before + "; " + text
	}
	c.header.Set("Cookie", text)
	return nil
}

func (c *curlLine) addJSON(text string) error {
	c.header.Set("Accept", "application/json")
	return addData("application/json")(c, text)
}

// addEncoded reads the value of --data-urlencode: "content", "=content" or "name=content".
func (c *curlLine) addEncoded(text string) error {
	name, content, ok := strings.Cut(text, "=")
	if !ok {
		name, content = "", text
	}
	encoded := url.QueryEscape(content)
	if name != "" {
		encoded = name + "=" + encoded
	}
	return addData(formData)(c, encoded)
}

func (c *curlLine) setUser(text string) error {
	name, password, _ := strings.Cut(text, ":")
	r := http.Request{Header: c.header}
	r.SetBasicAuth(name, password)
	return nil
}

// request is the request that curl would send.
func (c *curlLine) request() (*http.Request, error) {
	if len(c.urls) != 1 {
		return nil, fmt.Errorf("the curl command line has %d URLs; allowed: 1", len(c.urls))
	}
	target := c.urls[0]
	if !strings.Contains(target, "://") {
		target = "http://" + target
	}
	request, err := newRequest(c.verb(), target)
	if err != nil {
		return nil, err
	}
	if err := c.query(request.URL); err != nil {
		return nil, err
	}
	if user := request.URL.User; user != nil && c.header.Get("Authorization") == "" {
		password, _ := user.Password()
		c.setUser(user.Username() + ":" + password)
	}
	for _, name := range c.removed {
		c.header.Del(name)
	}
	if host := c.header.Get("Host"); host != "" {
		request.Host = host
		c.header.Del("Host")
	}
	request.Header = c.header
	if !c.get && len(c.data) > 0 {
		request.Body = io.NopCloser(strings.NewReader(strings.Join(c.data, "&")))
	}
	return request, nil
}

// verb is the method: -X overrides the other options.
func (c *curlLine) verb() string {
	switch {
	case c.method != "":
		return c.method
	case c.head:
		return http.MethodHead
	case len(c.data) > 0 && !c.get:
		return http.MethodPost
	}
	return http.MethodGet
}

// query puts the data of -G into the URL.
func (c *curlLine) query(u *url.URL) error {
	if !c.get || len(c.data) == 0 {
		return nil
	}
	c.header.Del("Content-Type")
	for _, data := range c.data {
		if strings.HasPrefix(data, "@") || c.form {
			return fmt.Errorf("the data %.80q of -G is not read; write -d 'name=value'", data)
		}
		if u.RawQuery != "" {
			u.RawQuery += "&"
		}
		u.RawQuery += data
	}
	return nil
}

// newRequest is a request as a server receives it.
func newRequest(method, target string) (*http.Request, error) {
	request, err := http.NewRequest(method, target, nil)
	if err != nil {
		return nil, fmt.Errorf("%.200q is not a request: %w", method+" "+target, err)
	}
	if request.URL.Scheme != "http" && request.URL.Scheme != "https" || request.URL.Host == "" {
		return nil, fmt.Errorf("URL is %.200q; allowed: http://HOST or https://HOST", target)
	}
	return request, nil
}
