package cli

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// A reloader answers POST /-/reload: all sources are read, and the answer waits until what
// they say is in force, or says what is wrong with it.
type reloader struct {
	live        *live
	token       string // that must be shown; "": none
	reading     string // shows that its bearer may only read
	hosts       bool   // only who calls this machine by its own names
	crossOrigin *http.CrossOriginProtection
}

func (v *server) reload(listener net.Listener) http.Handler {
	r := &reloader{live: v.live, token: v.secrets.token, reading: v.secrets.readToken, crossOrigin: http.NewCrossOriginProtection()}
	r.hosts = r.token+r.reading == "" && private(listener, &v.flags.http)
	return r
}

// A reloaded is what is in force.
type reloaded struct {
	Revision string           `json:"revision"` // of all sources together
	Rules    int              `json:"rules"`
	Sources  []reloadedSource `json:"sources"`
}

type reloadedSource struct {
	Name     string `json:"name"`
	Revision string `json:"revision"`
	Rules    int    `json:"rules"`
}

// A reloadProblem is an answer of RFC 9457.
type reloadProblem struct {
	Type     string    `json:"type"`
	Title    string    `json:"title"`
	Status   int       `json:"status"`
	Detail   string    `json:"detail"`
	Mistakes []mistake `json:"mistakes,omitempty"`
}

// ServeHTTP implements http.Handler.
func (l *reloader) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if status, why := l.refuses(w, r); status != 0 {
		l.problem(w, status, why, nil)
		return
	}
	// Who hangs up does not end what others wait for too; apiBodies ends the answer.
	ctx, cancel := context.WithTimeout(r.Context(), apiBodies-apiBodies/10)
	defer cancel()
	if err := l.live.keeper.Reload(ctx); err != nil {
		status, detail := http.StatusUnprocessableEntity, "some of the rules are wrong; the last good ones stay in force"
		if !l.wrong() {
			status, detail = http.StatusServiceUnavailable, "some of the rules could not be read in time; the last good ones stay in force"
		}
		l.problem(w, status, detail, mistakesOf(err))
		return
	}
	if status := l.live.keeper.Status(); status.LeftOut() > 0 {
		var left []mistake
		for _, y := range status.Layers {
			if y.LeftOut > 0 {
				left = append(left, mistakesOf(y.Warning)...)
			}
		}
		l.problem(w, http.StatusUnprocessableEntity, fmt.Sprintf("%d rules are wrong and not in force as they are there; all others are in force", status.LeftOut()), left)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(l.inForce())
}

// wrong reports whether a source says what cannot be used, rather than nothing.
func (l *reloader) wrong() bool {
	for _, y := range l.live.keeper.Status().Layers {
		if y.Err != nil && !y.Down {
			return true
		}
	}
	return false
}

func (l *reloader) inForce() *reloaded {
	status := l.live.keeper.Status()
	answer := &reloaded{Rules: len(l.live.gate.Rules().Rules())}
	var revisions []string
	for _, y := range status.Layers {
		revisions = append(revisions, y.Revision)
		answer.Sources = append(answer.Sources, reloadedSource{y.Name, y.Revision, y.Rules})
	}
	answer.Revision = strings.Join(revisions, "+")
	return answer
}

// refuses says why a request is none that is answered; 0: it is.
func (l *reloader) refuses(w http.ResponseWriter, r *http.Request) (status int, why string) {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed, "only POST reloads"
	case l.hosts && !ownName(r.Host):
		return http.StatusForbidden, "this server is called localhost, 127.0.0.1 or ::1"
	case l.crossOrigin.Check(r) != nil:
		return http.StatusForbidden, "the request comes from a page of another site"
	case l.token+l.reading == "":
		return 0, ""
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch given = strings.TrimSpace(given); {
	case strings.EqualFold(scheme, "Bearer") && same(given, l.token):
		return 0, ""
	case strings.EqualFold(scheme, "Bearer") && same(given, l.reading):
		return http.StatusForbidden, "this token may only read"
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	return http.StatusUnauthorized, "this needs a token: Authorization: Bearer TOKEN"
}

// same compares in a time that says nothing. Nobody has the empty token.
func same(given, token string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token))
	return token != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// ownName reports whether a Host is this machine's: by DNS anybody's page can have a name of
// its own mean 127.0.0.1.
func ownName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

func (l *reloader) problem(w http.ResponseWriter, status int, detail string, mistakes []mistake) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(&reloadProblem{"about:blank", http.StatusText(status), status, detail, mistakes})
}
