// Package forwardauth answers the authorization subrequests of proxies: nginx's auth_request,
// Traefik's ForwardAuth, Caddy's forward_auth, and HAProxy by a script. The proxy sends the head of
// a request, without its body, and serves the request if the answer is 200. docs/howto/forward-auth.md
// has a configuration for each.
//
// # Trust
//
// The headers that describe the request could be written by a client as well, so they are read only
// from trusted peers ([clientaddr.Extractor]). Other peers get a 403, with a sentence that says
// what to configure.
//
//	X-Forwarded-Method   X-Original-Method              the method; the subrequest's own is ignored
//	X-Forwarded-Uri      X-Original-URI, X-Original-URL the unchanged target, or a whole URL
//	X-Forwarded-Host                                    the host, unless the URL has it; not empty
//	X-Forwarded-For                                     the client's address, as the Extractor reads it
//
// A proxy writes one of the columns and may pass on the other from the client. A request with
// headers that disagree is refused, and so is one without a method, a target or a host.
// ?headers=forwarded or ?headers=original in the proxy's URL selects one column.
//
// # Responses
//
// 200 with the fields of the limits and no body, or the refusal that [httplimit.ByRules] writes.
// ?deny_status=403 replaces the status of every refusal: nginx turns a status other than 401 and
// 403 into a 500, or passes the request if it is configured to pass on errors. With it, 403 is
// every decision, and only an unavailable limiter is an error. X-Weir-Status has the original
// status.
//
// # Limitations
//
// The end of the request is not reported. A concurrency limit is acquired and released at once: the
// request is refused while others hold all units, and does not itself count. A cost stays at its
// estimate. The delay of a leaky queue passes before the answer.
package forwardauth

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/server/internal/web"
)

// StatusField has the original status of a refusal.
const StatusField = "X-Weir-Status"

// A handler answers the subrequests.
type handler struct {
	clients *clientaddr.Extractor
	limited http.Handler
}

// New returns the handler, for any method and path. The options, which it changes, are the options of
// httplimit.ByRules: their Clients are the trusted peers; with nil no peer is trusted, and every request is answered
// 403.
func New(g *gate.Gate, options *httplimit.RuleOptions) (http.Handler, error) {
	options.KeepEstimates = true
	if options.Clients == nil {
		options.Clients = new(clientaddr.Extractor)
	}
	limited, err := httplimit.ByRules(g, options)
	if err != nil {
		return nil, err
	}
	return &handler{options.Clients, limited(http.HandlerFunc(pass))}, nil
}

// pass answers a granted request.
func pass(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parameters, err := parse(r.URL.RawQuery)
	if err != nil { // 403: a proxy could take another status for an outage, in which it passes requests
		refuse(w, http.StatusForbidden, err)
		return
	}
	w = &answer{ResponseWriter: w, deny: parameters.deny}
	if !h.clients.TrustsPeer(r) {
		refuse(w, http.StatusForbidden, fmt.Errorf("forward-auth answers trusted proxies only, and %s is not one: "+
			"if it is yours, add it to trusted_proxies", r.RemoteAddr))
		return
	}
	restored, err := parameters.restore(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	h.limited.ServeHTTP(w, restored)
}

// refuse writes an error as plain text, for the operator of the proxy.
func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintln(w, err)
}

// Parameters are the parameters of the URL that the proxy requests.
type parameters struct {
	deny                int  // the status of refusals; 0: their own
	forwarded, original bool // the columns of headers to read
}

func parse(query string) (q parameters, err error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return q, fmt.Errorf("forward-auth: the query of the URL cannot be read: %w", err)
	}
	q.forwarded, q.original = true, true
	for name, list := range values {
		switch value := list[0]; {
		case len(list) > 1:
			return q, fmt.Errorf("forward-auth: %.40q occurs twice in the query of the URL", name)
		case name == "deny_status":
			if q.deny, err = strconv.Atoi(value); err != nil || q.deny < 400 || q.deny > 599 {
				const allowed = "400 to 599, and 403 for nginx"
				return q, fmt.Errorf("forward-auth: deny_status is %.20q; allowed: %s", value, allowed)
			}
		case name == "headers" && value == "forwarded":
			q.original = false
		case name == "headers" && value == "original":
			q.forwarded = false
		default:
			return q, fmt.Errorf("forward-auth: %.40q is %.40q in the query of the URL; "+
				"allowed: deny_status=403, headers=forwarded, headers=original", name, value)
		}
	}
	return q, nil
}

// restore rebuilds the request that the proxy received.
func (q *parameters) restore(r *http.Request) (*http.Request, error) {
	method := new(fact)
	method.add(q.lines(r.Header, "X-Forwarded-Method", "X-Original-Method")...)
	target, host, err := q.target(r)
	if err != nil {
		return nil, err
	}
	if method.value == "" {
		method.known = false
	}
	if err := method.check("method", "X-Forwarded-Method"); err != nil {
		return nil, err
	}
	restored := r.WithContext(r.Context())
	restored.Method = method.value
	restored.URL = target
	restored.Host = host
	restored.RequestURI = target.RequestURI()
	restored.Pattern = "" // the route of the subrequest is not that of the request
	web.WithoutBody(restored)
	return restored, nil
}

// target returns the URL without its host, and the host.
func (q *parameters) target(r *http.Request) (target *url.URL, host string, err error) {
	var targets, hosts fact
	for _, line := range q.lines(r.Header, "X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url") {
		u, err := url.ParseRequestURI(line)
		if err != nil || u.Opaque != "" || u.Scheme != "" && u.Host == "" {
			return nil, "", fmt.Errorf("forward-auth: the target %.80q of the request cannot be read", line)
		}
		if u.Host != "" {
			hosts.add(u.Host)
		}
		u.Scheme, u.Host, u.User = "", "", nil
		targets.add(u.RequestURI())
		target = u
	}
	if err := targets.check("target", "X-Forwarded-Uri"); err != nil {
		return nil, "", err
	}
	hosts.add(q.lines(r.Header, "X-Forwarded-Host")...)
	if !q.forwarded && !hosts.known {
		hosts.add(r.Host)
	}
	hosts.known = hosts.known && hosts.value != "" // rules by host would not match an empty one
	return target, hosts.value, hosts.check("host", "X-Forwarded-Host")
}

// lines returns all values of the selected headers.
func (q *parameters) lines(h http.Header, forwarded string, original ...string) (lines []string) {
	if q.forwarded {
		lines = append(lines, h[forwarded]...)
	}
	if q.original {
		for _, name := range original {
			lines = append(lines, h[name]...)
		}
	}
	return lines
}

// A fact is one property of the request, which several headers may state.
type fact struct {
	value           string
	known, conflict bool
}

func (f *fact) add(values ...string) {
	for _, value := range values {
		f.conflict = f.conflict || f.known && value != f.value
		f.value, f.known = value, true
	}
}

// check returns an error unless the headers state exactly one value.
func (f *fact) check(what, header string) error {
	switch {
	case f.conflict:
		return fmt.Errorf("forward-auth: two headers disagree on the request's %s, and one may be the client's; "+
			"have the proxy set both, or add headers=forwarded or headers=original to the URL that it requests", what)
	case !f.known:
		return fmt.Errorf("forward-auth: no header states the request's %s; have the proxy set %s", what, header)
	}
	return nil
}

// An answer replaces the status of refusals by the one that the proxy expects.
type answer struct {
	http.ResponseWriter
	deny int
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	if status >= 300 {
		a.Header().Set(StatusField, strconv.Itoa(status))
		if a.deny != 0 {
			status = a.deny
		}
	}
	a.ResponseWriter.WriteHeader(status)
}
