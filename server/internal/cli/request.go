package cli

import (
	"cmp"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/server/internal/admin"
)

// A requestFlags are the flags that describe a request.
type requestFlags struct {
	method, host, path, route, user, service, client, body string
	headers, queries, cookies, descriptors                 []string
}

func (f *requestFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.method, "method", "X", "", "`METHOD` of the request (default GET)")
	flags.StringVar(&f.host, "host", "", "`HOST` of the request")
	flags.StringVar(&f.path, "path", "", "`PATH` of the request, as a client sends it (default /)")
	flags.StringVar(&f.route, "route", "", "`ROUTE` that a router chose (default: by the routes of the rules)")
	flags.StringVar(&f.user, "user", "", "`NAME` of the authenticated user")
	flags.StringVar(&f.service, "service", "", "`NAME` of the service (default: that of the route)")
	flags.StringVar(&f.client, "client", "", "`ADDRESS` of the peer that connects (default 127.0.0.1)")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "a header, `NAME=VALUE` or NAME: VALUE; repeatable")
	flags.StringArrayVar(&f.queries, "query", nil, "a query parameter, `NAME=VALUE`; repeatable")
	flags.StringArrayVarP(&f.cookies, "cookie", "b", nil, "a cookie, `NAME=VALUE`; repeatable")
	flags.StringVarP(&f.body, "body", "d", "", "`TEXT` of the body, a form or a JSON object, which makes it a POST")
	flags.StringArrayVar(&f.descriptors, "descriptor", nil,
		"a custom descriptor, `NAME=VALUE`; repeatable")
}

// defaultClient is the address that connects without --client.
const defaultClient = "127.0.0.1"

// read makes the request of the argument, a URL, and the flags, which change it.
func (f *requestFlags) read(args []string) (*admin.ExplainedRequest, error) {
	q := &admin.ExplainedRequest{Method: cmp.Or(f.method, http.MethodGet), Route: f.route, User: f.user,
		Service: f.service, Client: cmp.Or(f.client, defaultClient), Body: f.body, Headers: make(map[string]string),
		Cookies: make(map[string]string)}
	if err := f.target(args, q); err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(q.Client); err != nil {
		return nil, program.Usagef(
			"--client is %.80q; allowed: an address, such as 203.0.113.7 or 2001:db8::7", q.Client)
	}
	for _, list := range []struct {
		flag   string
		values []string
		set    func(name, value string)
	}{
		{"header", f.headers, func(name, value string) { addHeader(q, http.CanonicalHeaderKey(name), value) }},
		{"query", f.queries, func(name, value string) { addQuery(q, name, value) }},
		{"cookie", f.cookies, func(name, value string) { q.Cookies[name] = value }},
		{"descriptor", f.descriptors, func(name, value string) {
			q.Descriptors = append(q.Descriptors, admin.Descriptor{Name: name, Value: value})
		}},
	} {
		for _, text := range list.values {
			name, value, err := pair(list.flag, text)
			if err != nil {
				return nil, err
			}
			list.set(name, value)
		}
	}
	f.completeBody(q)
	return q, nil
}

// target sets the host and the path.
func (f *requestFlags) target(args []string, q *admin.ExplainedRequest) error {
	if len(args) > 1 {
		return program.Usagef(
			"explain takes one URL, but was given %d arguments, the second of which is %.80q; of a curl "+
				"command line give the URL and -X, -H, -b and -d", len(args), args[1])
	}
	var u url.URL
	if len(args) == 1 {
		given, err := url.Parse(args[0])
		if err != nil || given.Scheme != "http" && given.Scheme != "https" || given.Host == "" {
			return program.Usagef("URL is %.200q; allowed: http://HOST or https://HOST", args[0])
		}
		u = *given
	}
	q.Host, q.Path = cmp.Or(f.host, u.Host), u.RequestURI()
	if f.path == "" {
		return nil
	}
	if _, err := url.ParseRequestURI(f.path); err != nil || !strings.HasPrefix(f.path, "/") {
		return program.Usagef("--path is %.200q; allowed: a path that begins with a slash, as in a request", f.path)
	}
	q.Path = f.path
	if u.RawQuery != "" && !strings.Contains(f.path, "?") {
		q.Path += "?" + u.RawQuery
	}
	return nil
}

// addHeader adds a line of a header.
func addHeader(q *admin.ExplainedRequest, name, value string) {
	if name == "Host" {
		q.Host = value
		return
	}
	if before, ok := q.Headers[name]; ok {
		value = before + ", " + value
	}
	q.Headers[name] = value
}

func addQuery(q *admin.ExplainedRequest, name, value string) {
	sign := "?"
	if strings.Contains(q.Path, "?") {
		sign = "&"
	}
	q.Path += sign + url.QueryEscape(name) + "=" + url.QueryEscape(value)
}

// completeBody sets the method and the type of a body as curl -d does, but for the type of JSON.
func (f *requestFlags) completeBody(q *admin.ExplainedRequest) {
	if q.Body == "" {
		return
	}
	if f.method == "" {
		q.Method = http.MethodPost
	}
	switch {
	case q.Headers["Content-Type"] != "":
	case strings.HasPrefix(strings.TrimSpace(q.Body), "{"):
		q.Headers["Content-Type"] = "application/json"
	default:
		q.Headers["Content-Type"] = "application/x-www-form-urlencoded"
	}
}

func pair(flag, text string) (name, value string, err error) {
	i := strings.Index(text, "=")
	if flag == "header" {
		i = strings.IndexAny(text, "=:")
	}
	if i < 1 {
		return "", "", program.Usagef("--%s is %.80q; allowed: NAME=VALUE", flag, text)
	}
	return text[:i], strings.TrimSpace(text[i+1:]), nil
}
