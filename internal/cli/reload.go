package cli

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/pathform"
)

// A reloader answers POST /-/reload: it reads all sources, and answers when their rules are in
// force, or with the mistakes in them.
type reloader struct {
	engine      *engine.Engine
	token       string // required; "": none
	reading     string // read-only token, which may not reload
	hosts       bool   // only requests to localhost
	crossOrigin *http.CrossOriginProtection
}

func (v *server) reload(listener net.Listener) http.Handler {
	r := &reloader{
		engine:      v.engine,
		token:       v.secrets.token,
		reading:     v.secrets.readToken,
		crossOrigin: http.NewCrossOriginProtection(),
	}
	r.hosts = r.token+r.reading == "" && private(listener, &v.flags.http)
	return r
}

// A reloaded describes the rules in force.
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

// A reloadProblem is a problem document of RFC 9457.
type reloadProblem struct {
	Type     string           `json:"type"`
	Title    string           `json:"title"`
	Status   int              `json:"status"`
	Detail   string           `json:"detail"`
	Mistakes []engine.Mistake `json:"mistakes,omitempty"`
}

// ServeHTTP implements http.Handler.
func (l *reloader) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if status, why := l.refuses(w, r); status != 0 {
		l.problem(w, status, why, nil)
		return
	}
	// A client that disconnects does not cancel a reload that others wait for. The answer must be
	// written before apiBodies.
	ctx, cancel := context.WithTimeout(r.Context(), apiBodies-apiBodies/10)
	defer cancel()
	if err := l.engine.Reload(ctx); err != nil {
		status, detail := http.StatusUnprocessableEntity, "some rules are invalid; the last valid rules stay in force"
		if !l.wrong() {
			status, detail = http.StatusServiceUnavailable, "some rules could not be read in time; the last valid "+
				"rules stay in force"
		}
		l.problem(w, status, detail, engine.Mistakes(err))
		return
	}
	if status := l.engine.Status(); status.LeftOut() > 0 {
		var left []engine.Mistake
		for _, y := range status.Layers {
			if y.LeftOut > 0 {
				left = append(left, engine.Mistakes(y.Warning)...)
			}
		}
		detail := fmt.Sprintf("%d rules are invalid and not in force; all others are in force", status.LeftOut())
		l.problem(w, http.StatusUnprocessableEntity, detail, left)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(l.inForce())
}

// wrong reports whether a source has invalid rules, rather than being down.
func (l *reloader) wrong() bool {
	for _, y := range l.engine.Status().Layers {
		if y.Err != nil && !y.Down {
			return true
		}
	}
	return false
}

func (l *reloader) inForce() *reloaded {
	status := l.engine.Status()
	answer := &reloaded{Rules: len(l.engine.Gate.Rules().Rules())}
	var revisions []string
	for _, y := range status.Layers {
		revisions = append(revisions, y.Revision)
		answer.Sources = append(answer.Sources, reloadedSource{y.Name, y.Revision, y.Rules})
	}
	answer.Revision = strings.Join(revisions, "+")
	return answer
}

// refuses returns the status and reason of a refusal; 0: the request is allowed.
func (l *reloader) refuses(w http.ResponseWriter, r *http.Request) (status int, why string) {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed, "method not allowed; allowed: POST"
	case l.hosts && !ownName(r.Host):
		return http.StatusForbidden, "host not allowed; allowed: localhost, 127.0.0.1, ::1"
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
	return http.StatusUnauthorized, "a token is required: Authorization: Bearer TOKEN"
}

// same compares in constant time. The empty token matches nothing.
func same(given, token string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token))
	return token != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// ownName reports whether a Host header names this machine.
func ownName(host string) bool {
	name, err := pathform.Host(host)
	ip := net.ParseIP(name)
	return err == nil && (strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback())
}

func (l *reloader) problem(w http.ResponseWriter, status int, detail string, mistakes []engine.Mistake) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(&reloadProblem{"about:blank", http.StatusText(status), status, detail, mistakes})
}

// reloadWithin is the timeout of a reload on a signal. Sources read before it stay in force.
const reloadWithin = 30 * time.Second

// reloadOn reads all sources on each signal. It logs the result, since unchanged sources send no
// event.
func (v *server) reloadOn(hup <-chan os.Signal) {
	for range hup {
		ctx, cancel := context.WithTimeout(context.Background(), reloadWithin)
		err := v.engine.Reload(ctx)
		cancel()
		rules := len(v.engine.Gate.Rules().Rules())
		if err == nil {
			v.log.Info("reload: all rules are in force", "signal", "hangup", "rules", rules)
			continue
		}
		mistakes := engine.Mistakes(err)
		v.log.Error("reload: not all rules are in force", "signal", "hangup", "rules", rules, "mistakes", len(mistakes))
		for _, text := range mistakes {
			v.log.Error("rules: "+text.Message, text.Where("")...)
		}
	}
}
