package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/webvalues"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
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

// An explainedRequest is the request of weir explain.
type explainedRequest struct {
	rules.Request
	request   *http.Request
	peer      string // address that connects
	sent      string // path before normalization
	assumed   bool   // the client address is a default
	header    http.Header
	query     url.Values
	cookies   map[string]string
	described map[string]string
	body      string
	routed    bool     // the file's routes chose the route
	doubts    []string // what a server would not do as the request asks
}

// Header implements rules.Attributes.
func (a *explainedRequest) Header(name string) string { return a.header.Get(name) }

// Query implements rules.Attributes.
func (a *explainedRequest) Query(name string) string { return a.query.Get(name) }

// Cookie implements rules.Attributes.
func (a *explainedRequest) Cookie(name string) string { return a.cookies[name] }

// Descriptor implements rules.Attributes.
func (a *explainedRequest) Descriptor(name string) string { return a.described[name] }

// Body is a field of the body.
func (a *explainedRequest) Body(name string) string {
	return webvalues.NewBody(webvalues.FormatOf(textproto.MIMEHeader(a.header)), []byte(a.body), "").Value(name)
}

// read makes the request of the argument, a URL, and the flags, which change it.
func (f *requestFlags) read(args []string, l *engine.Setup) (*explainedRequest, error) {
	request, err := f.base(args)
	if err != nil {
		return nil, err
	}
	if err := f.amend(request); err != nil {
		return nil, err
	}
	a := &explainedRequest{request: request, header: request.Header, query: request.URL.Query(),
		cookies: make(map[string]string), described: make(map[string]string)}
	if request.Body != nil {
		text, _ := io.ReadAll(request.Body) // of the command line
		a.body = string(text)
	}
	for _, cookie := range request.Cookies() {
		if _, ok := a.cookies[cookie.Name]; !ok {
			a.cookies[cookie.Name] = cookie.Value
		}
	}
	var keys []string
	for _, text := range f.descriptors {
		name, value, err := pair("descriptor", text)
		if err != nil {
			return nil, err
		}
		if _, given := a.described[name]; !given {
			keys = append(keys, name)
		}
		a.described[name] = value
	}
	a.Request = rules.Request{Method: request.Method, Route: f.route, User: f.user, Service: f.service,
		DescriptorKeys: keys, Attributes: a}
	if request.Host != "" {
		if a.Host, err = pathform.Host(request.Host); err != nil {
			return nil, usagef("%v", err)
		}
	}
	a.sent = request.URL.EscapedPath()
	a.Path, _ = l.Form.Path(a.sent) // the front end refuses an ambiguous path
	return a, a.setClient(f.client, l.Clients)
}

// choose sets the route and the service as the gateway does, unless flags set one of them.
func (a *explainedRequest) choose(set *rules.Set) {
	if a.Route != "" || a.Service != "" || a.Path == "" || len(set.Routes()) == 0 {
		return
	}
	set.SetRoute(&a.Request)
	if a.routed = a.Route != ""; !a.routed {
		a.doubts = append(a.doubts, "no route matches: a gateway without --upstream answers 404")
	}
}

// doubtGeo says what is not known of the client although the rules need it.
func (a *explainedRequest) doubtGeo(l *engine.Setup) {
	country, asn := l.Set.Located()
	if country && a.Country == "" {
		a.doubts = append(a.doubts, "the country of the client is not known: see --geo and --country-header")
	}
	if asn && a.ASN == 0 {
		a.doubts = append(a.doubts, "the autonomous system of the client is not known: see --geo")
	}
}

// base is the request before the flags amend it.
func (f *requestFlags) base(args []string) (*http.Request, error) {
	switch {
	case len(args) == 0:
		request, err := newRequest("GET", "http://localhost/")
		if err == nil {
			request.Host, request.ProtoMinor = "", 0 // only HTTP/1.0 allows no host
		}
		return request, err
	case len(args) == 1:
		request, err := newRequest("GET", args[0])
		if err != nil {
			return nil, usagef("%v", err)
		}
		return request, nil
	}
	return nil, usagef("explain takes one URL, but was given %d arguments, the second of which is %.80q; of a curl "+
		"command line give the URL and -X, -H, -b and -d", len(args), args[1])
}

func (f *requestFlags) amend(request *http.Request) error {
	if f.method != "" {
		request.Method = f.method
	}
	if f.host != "" {
		request.Host = f.host
	}
	if f.path != "" {
		target, err := url.ParseRequestURI(f.path)
		if err != nil || !strings.HasPrefix(f.path, "/") {
			return usagef("--path is %.200q; allowed: a path that begins with a slash, as in a request", f.path)
		}
		query := request.URL.RawQuery
		request.URL.Path, request.URL.RawPath, request.URL.RawQuery = target.Path, target.RawPath, target.RawQuery
		if query != "" && target.RawQuery == "" {
			request.URL.RawQuery = query
		}
	}
	query := request.URL.Query()
	for _, list := range []struct {
		flag   string
		values []string
		set    func(name, value string)
	}{
		{"header", f.headers, request.Header.Add},
		{"query", f.queries, query.Add},
		{"cookie", f.cookies, func(name, value string) { request.AddCookie(&http.Cookie{Name: name, Value: value}) }},
	} {
		for _, text := range list.values {
			name, value, err := pair(list.flag, text)
			if err != nil {
				return err
			}
			list.set(name, value)
		}
	}
	if len(f.queries) > 0 {
		request.URL.RawQuery = query.Encode()
	}
	f.setBody(request)
	return nil
}

// setBody sets the body as curl -d does, but for the type of JSON.
func (f *requestFlags) setBody(request *http.Request) {
	if f.body == "" {
		return
	}
	request.Body = io.NopCloser(strings.NewReader(f.body))
	if f.method == "" && request.Method == http.MethodGet {
		request.Method = http.MethodPost
	}
	switch {
	case request.Header.Get("Content-Type") != "":
	case strings.HasPrefix(strings.TrimSpace(f.body), "{"):
		request.Header.Set("Content-Type", "application/json")
	default:
		request.Header.Set("Content-Type", formData)
	}
}

func pair(flag, text string) (name, value string, err error) {
	i := strings.Index(text, "=")
	if flag == "header" {
		i = strings.IndexAny(text, "=:")
	}
	if i < 1 {
		return "", "", usagef("--%s is %.80q; allowed: NAME=VALUE", flag, text)
	}
	return text[:i], strings.TrimSpace(text[i+1:]), nil
}

// setClient finds the client address as a front end does, behind trusted proxies.
func (a *explainedRequest) setClient(peer string, clients *clientaddr.Extractor) error {
	if peer == "" {
		peer, a.assumed = "127.0.0.1", true
	}
	if _, err := netip.ParseAddr(peer); err != nil {
		return usagef("--client is %.80q; allowed: an address, such as 203.0.113.7 or 2001:db8::7", peer)
	}
	address, _ := clients.From(peer, a.header.Values(clients.Header()))
	a.assumed = a.assumed && address.String() == peer
	a.peer, a.Client = peer, address
	trusted := clients.Trusts(netip.MustParseAddr(peer))
	if !trusted && a.header.Values(clients.Header()) != nil {
		a.doubts = append(a.doubts,
			fmt.Sprintf("%s is ignored: %s is not in --trusted-proxies", clients.Header(), peer))
	}
	if !trusted && a.User != "" {
		a.doubts = append(a.doubts,
			fmt.Sprintf("a gateway would ignore the user: %s is not in --trusted-proxies", peer))
	}
	return nil
}

const formData = "application/x-www-form-urlencoded"

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
