package proxycheck

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// An Attack has the bytes of a request that a proxy, weir or a service could misread.
type Attack struct {
	Name  string
	Bytes string
}

// A request is the plain request; attacks replace parts of it.
type request struct {
	method, path, query, host string
	fields                    []string
}

const (
	probe = "verify"         // value of keys that the given request does not have
	fresh = "weir-new-value" // is replaced by another value in each request
)

// newRequest is the configured request, with a value for each component of the keys. Those of other keys than the
// given one are fresh, so that their limits do not refuse it; nil is all keys.
func newRequest(c *Config, key []string) request {
	r := request{method: c.Method, path: c.URL.EscapedPath(), query: c.URL.RawQuery, host: c.URL.Host}
	if r.method == "" {
		r.method = "GET"
	}
	if r.path == "" {
		r.path = "/"
	}
	r.fields = slices.Clone(c.Fields)
	for _, component := range slices.Concat(c.Keys...) {
		value := probe
		if key != nil && !slices.Contains(key, component) {
			value = fresh
		}
		r.complete(component, value)
	}
	return r
}

// complete adds the value of a component that the request does not have.
func (r *request) complete(component, value string) {
	kind, name, _ := strings.Cut(component, ".")
	switch kind {
	case "query":
		if find(strings.Split(r.query, "&"), name) == "" {
			r.query = joined(r.query, "&", url.QueryEscape(name)+"="+value)
		}
	case "header":
		if !strings.EqualFold(name, "Host") && !r.has(name) {
			r.fields = append(r.fields, name+": "+value)
		}
	case "cookie":
		cookies := r.take("Cookie")
		if find(strings.Split(cookies, ";"), name) == "" {
			cookies = joined(cookies, "; ", name+"="+value)
		}
		r.fields = append(r.fields, "Cookie: "+cookies)
	}
}

func joined(text, by, more string) string {
	if text == "" {
		return more
	}
	return text + by + more
}

// take removes a field and returns its value.
func (r *request) take(name string) (value string) {
	r.fields = slices.DeleteFunc(slices.Clone(r.fields), func(field string) bool {
		found, text, _ := strings.Cut(field, ":")
		if !strings.EqualFold(found, name) {
			return false
		}
		value = strings.TrimSpace(text)
		return true
	})
	return value
}

func (r *request) has(name string) bool {
	copied := *r
	return copied.take(name) != "" || len(copied.fields) < len(r.fields)
}

func (r *request) target() string { return r.to(r.path) }

// to is another path with the query.
func (r *request) to(path string) string {
	if r.query == "" {
		return path
	}
	return path + "?" + r.query
}

func (r *request) bytes() string { return r.head(r.method+" "+r.target()+" HTTP/1.1", "Host: "+r.host) }

// head is a request with another first line and another Host, and with fields added. The odd part stands last: it may
// end the head, and a request without the fields of its key would be counted rightly under another one.
func (r *request) head(line, host string, fields ...string) string {
	lines := append([]string{line}, r.fields...)
	if host != "" {
		lines = append(lines, host)
	}
	lines = append(lines, fields...)
	if r.method != "GET" && r.method != "HEAD" && !r.has("Content-Length") {
		lines = append(lines, "Content-Length: 0")
	}
	return strings.Join(append(lines, "Connection: close", "", ""), "\r\n")
}

// A builder collects attacks.
type builder struct {
	request
	list []Attack
}

func (b *builder) add(name, bytes string) { b.list = append(b.list, Attack{name, bytes}) }

func (b *builder) field(name string, fields ...string) {
	b.add(name, b.head(b.method+" "+b.target()+" HTTP/1.1", "Host: "+b.host, fields...))
}

func (b *builder) aim(name, target string) {
	b.add(name, b.head(b.method+" "+target+" HTTP/1.1", "Host: "+b.host))
}

func (b *builder) at(name, host string) {
	b.add(name, b.head(b.method+" "+b.target()+" HTTP/1.1", host))
}

func (b *builder) by(name, method string) {
	b.add(name, b.head(method+" "+b.target()+" HTTP/1.1", "Host: "+b.host))
}

func phases(c *Config) []phase {
	b := &builder{request: newRequest(c, nil)}
	b.everyByte()
	b.oddFields()
	b.sizes()
	b.counts()
	b.paths()
	b.hosts()
	b.methods(c.Methods)
	list := []phase{{nil, Attack{"the plain request", b.bytes()}, b.list}}
	for _, key := range c.Keys {
		b := &builder{request: newRequest(c, key)}
		for _, component := range key {
			b.spell(component)
		}
		if len(b.list) > 0 {
			plain := Attack{"the plain request for " + strings.Join(key, ", "), b.bytes()}
			list = append(list, phase{key, plain, b.list})
		}
	}
	return list
}

func (b *builder) everyByte() {
	query := joined(b.query, "&", "b=")
	for i := range 256 {
		c := string([]byte{byte(i)})
		b.field(fmt.Sprintf("byte %#x in a value", i), "X-A: a"+c+"z")
		b.field(fmt.Sprintf("byte %#x in a name", i), "X-A"+c+"z: a")
		b.field(fmt.Sprintf("byte %#x in a cookie", i), "Cookie: a="+c)
		if c != "?" {
			b.aim(fmt.Sprintf("byte %#x after the path", i), b.to(b.path+c))
		}
		b.aim(fmt.Sprintf("byte %#x in the query", i), b.path+"?"+query+c+"z")
		b.by(fmt.Sprintf("byte %#x in the method", i), b.method[:1]+c+b.method[1:])
		b.at(fmt.Sprintf("byte %#x in the host", i), "Host: "+b.host+c)
	}
}

func (b *builder) oddFields() {
	for _, field := range []string{"Expect: 100-continue", "Expect: other", "Upgrade: h2c", "Upgrade: websocket",
		"Transfer-Encoding: other", "Transfer-Encoding: chunked, chunked", "Content-Length: x", "Content-Length: -1",
		"Content-Length: 1\r\nContent-Length: 2", "Content-Length: 99999999999999999999", "TE: trailers",
		"Trailer: Content-Length", "HTTP2-Settings: x", " folded: x", ": nameless", "X-A : blank", "X-A",
		"X-A: a\r\n folded", "Range: bytes=0-0", "If-None-Match: *", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT",
		"Connection: X-Forwarded-Uri, X-Forwarded-Method, X-Forwarded-Host, X-Forwarded-For",
		"X-Forwarded-For: 203.0.113.9", "X-Real-IP: 203.0.113.9", "Forwarded: for=203.0.113.9", "X-Forwarded-Uri: /x",
		"X-Forwarded-Method: PUT", "X-Forwarded-Host: x", "X-Original-URI: /x", "X-Original-Method: PUT",
		"X-Original-URL: http://x/", "X-Rewrite-URL: /x", "X-Weir-Status: 200", "X_Forwarded_For: 203.0.113.9"} {
		b.field(fmt.Sprintf("field %q", field), field)
	}
}

// sizes has those around the maxima of proxies and weir: 4 to 16 KB in buffers, 60 KB and 1 MB as a whole. A proxy
// sends weir more than it got, so a head just below its own maximum is not below the maximum of its second request.
func (b *builder) sizes() {
	for _, n := range []int{255, 1 << 10, 3 << 10, 4000, 6000, 7000, 7500, 7800, 8000, 8100, 8200, 10_000, 12_000,
		14_000, 14_500, 14_900, 15_100, 15_200, 15_300, 15_360, 16_000, 20_000, 30_000, 32_000, 57_000, 60_000, 65_000,
		130_000, 300_000, 500_000, 900_000, 1_000_000} {
		text := strings.Repeat("a", n)
		b.field(fmt.Sprintf("a field of %d bytes", n), "X-A: "+text)
		b.field(fmt.Sprintf("a name of %d bytes", n), text+": a")
		b.field(fmt.Sprintf("%d bytes of fields", n), lines(n/1000, "X-A: "+strings.Repeat("a", 993))...)
		b.field(fmt.Sprintf("a cookie of %d bytes", n), "Cookie: a="+text)
		b.at(fmt.Sprintf("a host of %d bytes", n), "Host: "+text)
		b.aim(fmt.Sprintf("a path of %d bytes", n), b.to(strings.TrimSuffix(b.path, "/")+"/"+text))
		b.aim(fmt.Sprintf("a query of %d bytes", n), b.path+"?"+joined(b.query, "&", text))
		b.by(fmt.Sprintf("a method of %d bytes", n), strings.ToUpper(text))
		half := strings.Repeat("a", n/2)
		both := b.head(b.method+" "+b.target()+" HTTP/1.1", "Host: "+half, "X-A: "+half)
		b.add(fmt.Sprintf("a host and a field of %d bytes together", n), both)
	}
}

func lines(n int, line string) []string { return slices.Repeat([]string{line}, n) }

func (b *builder) counts() {
	for _, n := range []int{60, 80, 90, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 120, 200, 500, 1000, 3000, 10_000} {
		numbered := make([]string, n)
		for i := range numbered {
			numbered[i] = fmt.Sprintf("X-%d: a", i)
		}
		b.field(fmt.Sprintf("%d fields", n), numbered...)
		b.field(fmt.Sprintf("%d fields of one name", n), lines(n, "X-A: a")...)
		b.field(fmt.Sprintf("%d cookies", n), "Cookie: "+strings.Repeat("a=b; ", n)+"c=d")
		b.field(fmt.Sprintf("%d lines of cookies", n), lines(n, "Cookie: a=b")...)
		b.field(fmt.Sprintf("%d addresses", n), "X-Forwarded-For: 203.0.113.9"+strings.Repeat(", 203.0.113.9", n))
		b.aim(fmt.Sprintf("%d parameters", n), b.path+"?"+joined(b.query, "&", "a"+strings.Repeat("&a", n)))
		b.aim(fmt.Sprintf("%d slashes", n), b.to(strings.Repeat("/", n)+strings.TrimPrefix(b.path, "/")))
	}
}

// paths that a service may read as the same one.
func (b *builder) paths() {
	rest := strings.TrimPrefix(b.path, "/")
	escaped := ""
	for _, c := range []byte(rest) {
		if c == '/' || c == '%' {
			escaped += string(c)
			continue
		}
		escaped += fmt.Sprintf("%%%02x", c)
	}
	for _, path := range []string{"//" + rest, "/./" + rest, "/x/../" + rest, "/%2e/" + rest, "/x/%2e%2e/" + rest,
		"/" + escaped,
		"/x%2f..%2f" + rest, "/x\\..\\" + rest, "/" + rest + "/", "/" + rest + "/.", "/" + rest + ";x",
		"/" + rest + ";", "/;/" + rest, "/..;/" + rest, "/" + rest + "%20", "/" + rest + "%00", "/" + rest + "%0a",
		"/" + rest + ".", "/" + rest + "#x", "/" + strings.ToUpper(rest), "/" + rest + "?", "*", "//", "/%zz" + rest,
		"x:" + rest, "http://" + b.host + b.path, "http://x" + b.path, "http://" + b.path,
		"https://" + b.host + b.path} {
		b.aim(fmt.Sprintf("target %.60q", path), b.to(path))
	}
	b.add("HTTP/1.0", b.head(b.method+" "+b.target()+" HTTP/1.0", "Host: "+b.host))
	b.add("HTTP/0.9", b.method+" "+b.target()+"\r\n\r\n")
	b.add("lower-case protocol", b.head(b.method+" "+b.target()+" http/1.1", "Host: "+b.host))
}

func (b *builder) hosts() {
	for _, host := range []string{"", "Host: ", "Host: x", "Host: " + strings.ToUpper(b.host), "Host: " + b.host + ".",
		"Host: " + b.host + "\r\nHost: x", "Host: x\r\nHost: " + b.host, "Host: x y", "Host: [::1", "Host: x:y",
		"Host: " + b.host + "/y", "Host: u@" + b.host, "Host: x, " + b.host, "Host : " + b.host} {
		b.at(fmt.Sprintf("host line %.60q", host), host)
	}
}

func (b *builder) methods(others bool) {
	lower := strings.ToLower(b.method)
	list := []string{lower, b.method[:1] + lower[1:], b.method + "X", "X"}
	if others {
		list = append(list, "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND",
			"QUERY", "PRI", "PURGE")
	}
	for _, method := range list {
		b.by("method "+method, method)
	}
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		b.field("field "+name, name+": PUT")
	}
}
