// Package forwardauth answers proxies that ask whether they may serve a request: nginx's
// auth_request, Traefik's ForwardAuth, Caddy's forward_auth, and HAProxy by a script. They
// send the request's head to this door, without its body, and serve the request if the
// answer is 200. docs/forward-auth.md has a configuration of each.
//
// # What is believed
//
// The request in question stands in headers that a client could write as well. So they are
// read only from trusted peers ([clientaddr.Extractor]); everybody else is answered 403,
// with a sentence that says what to configure.
//
//	X-Forwarded-Method   X-Original-Method              the method; the asking request's own does not matter
//	X-Forwarded-Uri      X-Original-URI, X-Original-URL the target as it came, or a whole URL
//	X-Forwarded-Host                                    the host, unless the URL has it; it may not be empty
//	X-Forwarded-For                                     the client's address, as the Extractor reads it
//
// Proxies write one of the columns and may hand on the other from the client. Where two
// headers say different things the request is refused, and so is one that lacks a method,
// a target or a host; ?headers=forwarded or ?headers=original in the URL that the proxy is
// given has one column read alone.
//
// # What is answered
//
// 200 with the fields of the limits and no body, or the refusal that [httplimit.ByRules]
// makes. With ?deny_status=403 each refusal has that status, because nginx answers 500 for
// any other than 401 and 403, or passes the request if it was told to on errors: then 403
// is for all that was decided, and only a limiter that does not answer is an error. The
// true status stands in X-Weir-Status.
//
// # What a proxy's question cannot do
//
// Nobody tells this door when the request is over. A concurrency limit is asked and let go
// of at once: the request is refused while others hold all of it, and does not itself
// count. A cost stays at its estimate. A leaky queue's delay is slept before the answer.
package forwardauth

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
)

// StatusField has the true status of a refusal.
const StatusField = "X-Weir-Status"

// A door is the handler.
type door struct {
	clients *clientaddr.Extractor
	limited http.Handler
}

// New makes the handler, for any method and any path. clients says which peers are trusted;
// nil trusts nobody, and then nobody is answered. The options are those of
// httplimit.ByRules.
func New(g *gate.Gate, clients *clientaddr.Extractor, options ...httplimit.Option) (http.Handler, error) {
	if clients == nil {
		clients = new(clientaddr.Extractor)
	}
	all := append([]httplimit.Option{httplimit.WithClients(clients), httplimit.WithoutSettling()}, options...)
	limited, err := httplimit.ByRules(g, all...)
	if err != nil {
		return nil, err
	}
	return &door{clients, limited(http.HandlerFunc(pass))}, nil
}

// pass answers for requests that may be served.
func pass(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	question, err := parse(r.URL.RawQuery)
	if err != nil { // 403, which no proxy takes for an outage that it may pass requests in
		refuse(w, http.StatusForbidden, err)
		return
	}
	w = &answer{ResponseWriter: w, deny: question.deny}
	if !d.clients.TrustsPeer(r) {
		refuse(w, http.StatusForbidden, fmt.Errorf("forward-auth is for trusted proxies, and %s is none: if it is yours, add it to trusted_proxies", r.RemoteAddr))
		return
	}
	restored, err := question.restore(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	d.limited.ServeHTTP(w, restored)
}

// refuse says in a sentence what to do. It reads like an error, and is for people.
func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintln(w, err)
}

// A question is what the proxy's URL says about how to ask and to answer.
type question struct {
	deny                int  // the status of refusals; 0: their own
	forwarded, original bool // which columns of headers are read
}

func parse(query string) (q question, err error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return q, fmt.Errorf("forward-auth: the query of the URL cannot be read: %w", err)
	}
	q.forwarded, q.original = true, true
	for name, list := range values {
		switch value := list[0]; {
		case len(list) > 1:
			return q, fmt.Errorf("forward-auth: %.40q stands twice in the query of the URL", name)
		case name == "deny_status":
			if q.deny, err = strconv.Atoi(value); err != nil || q.deny < 400 || q.deny > 599 {
				return q, fmt.Errorf("forward-auth: deny_status is %.20q; allowed: 400 to 599, and 403 for nginx", value)
			}
		case name == "headers" && value == "forwarded":
			q.original = false
		case name == "headers" && value == "original":
			q.forwarded = false
		default:
			return q, fmt.Errorf("forward-auth: %.40q is %.40q in the query of the URL; allowed: deny_status=403, headers=forwarded, headers=original", name, value)
		}
	}
	return q, nil
}

// restore is the request that the proxy asks about.
func (q *question) restore(r *http.Request) (*http.Request, error) {
	method := new(fact)
	method.say(q.lines(r.Header, "X-Forwarded-Method", "X-Original-Method")...)
	target, host, err := q.target(r)
	if err != nil {
		return nil, err
	}
	if method.value == "" {
		method.known = false
	}
	if err := method.settled("method", "X-Forwarded-Method"); err != nil {
		return nil, err
	}
	restored := r.WithContext(r.Context())
	restored.Method, restored.URL, restored.Host, restored.RequestURI = method.value, target, host, target.RequestURI()
	restored.Pattern = "" // this door's is not the route of the request
	restored.Body, restored.ContentLength = http.NoBody, 0
	return restored, nil
}

// target is the URL without its host, and the host.
func (q *question) target(r *http.Request) (target *url.URL, host string, err error) {
	var targets, hosts fact
	for _, line := range q.lines(r.Header, "X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url") {
		u, err := url.ParseRequestURI(line)
		if err != nil || u.Opaque != "" || u.Scheme != "" && u.Host == "" {
			return nil, "", fmt.Errorf("forward-auth: the target %.80q of the request cannot be read", line)
		}
		if u.Host != "" {
			hosts.say(u.Host)
		}
		u.Scheme, u.Host, u.User = "", "", nil
		targets.say(u.RequestURI())
		target = u
	}
	if err := targets.settled("target", "X-Forwarded-Uri"); err != nil {
		return nil, "", err
	}
	hosts.say(q.lines(r.Header, "X-Forwarded-Host")...)
	if !q.forwarded && !hosts.known {
		hosts.say(r.Host)
	}
	hosts.known = hosts.known && hosts.value != "" // no rule by host would see it
	return target, hosts.value, hosts.settled("host", "X-Forwarded-Host")
}

// lines are all lines of the headers of the columns that are read.
func (q *question) lines(h http.Header, forwarded string, original ...string) (lines []string) {
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

// A fact is what several headers may say of one thing.
type fact struct {
	value        string
	known, twice bool
}

func (f *fact) say(values ...string) {
	for _, value := range values {
		f.twice = f.twice || f.known && value != f.value
		f.value, f.known = value, true
	}
}

// settled is an error unless the fact is known, and only one.
func (f *fact) settled(what, header string) error {
	switch {
	case f.twice:
		return fmt.Errorf("forward-auth: two headers say different things of the request's %s, and one may be the client's own; "+
			"have the proxy set both, or add headers=forwarded or headers=original to the URL that it asks", what)
	case !f.known:
		return fmt.Errorf("forward-auth: no header says the request's %s; have the proxy set %s", what, header)
	}
	return nil
}

// An answer gives refusals the status that the proxy understands.
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
