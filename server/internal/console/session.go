package console

import (
	"errors"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/weirproject/weir/server/internal/web"
)

const maxLogin = 4 << 10 // bytes of a login's body

// A session is the answer to GET: the permissions of the caller.
type session struct {
	Login  bool   `json:"login" doc:"The caller is not known, and has to log in."`
	Name   string `json:"name,omitzero"`
	Write  bool   `json:"write"`
	Logout bool   `json:"logout" doc:"The caller has a session, which can end."`
	Ledger bool   `json:"ledger" doc:"Rules and exceptions can be changed."`
}

// A login is the body of POST.
type login struct {
	Token string `json:"token"`
}

// Operations describes SessionPath, for an OpenAPI document.
func Operations() []web.Operation {
	const forbidden, limited = http.StatusForbidden, http.StatusTooManyRequests
	return []web.Operation{
		{Method: http.MethodGet, Path: SessionPath, ID: "getSession", Answers: []any{session{}},
			Errors: []int{forbidden}, Summary: "Show what the caller may do"},
		{Method: http.MethodPost, Path: SessionPath, ID: "logIn", Body: map[string]any{"application/json": login{}},
			Errors: []int{http.StatusBadRequest, http.StatusUnauthorized, forbidden, http.StatusRequestEntityTooLarge,
				http.StatusUnsupportedMediaType, limited},
			Summary: "Exchange a token for a cookie, which lasts 12 hours"},
		{Method: http.MethodDelete, Path: SessionPath, ID: "logOut", Errors: []int{forbidden},
			Summary: "End the session of the cookie"},
	}
}

// sessions is the handler of SessionPath: GET shows the caller, POST logs in, DELETE logs out. The attempt is counted
// before the token is read, so that guessing is limited.
func sessions(c Config) http.Handler {
	logins := c.LimitLogins(http.HandlerFunc(c.login))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			c.describe(w, r)
		case http.MethodPost:
			logins.ServeHTTP(w, r)
		case http.MethodDelete:
			finish(w, r, c.Access.Logout(r))
		default:
			web.NotAllowed(r, "GET, HEAD, POST, DELETE").Write(w)
		}
	})
}

func (c *Config) describe(w http.ResponseWriter, r *http.Request) {
	s := session{Ledger: c.Ledger, Logout: c.Access.HasSession(r)}
	name, err := c.Access.Identify(r, false)
	s.Name, s.Login = name, err != nil
	_, err = c.Access.Identify(r, true)
	s.Write = err == nil
	answer, _ := json.Marshal(s, json.Deterministic(true)) // no value of it can fail
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(append(answer, '\n')) // an error means that the connection is gone
}

func (c *Config) login(w http.ResponseWriter, r *http.Request) {
	cookie, err := c.cookie(r)
	var p *web.Problem
	if errors.As(err, &p) {
		p.Write(w)
		return
	}
	finish(w, r, cookie)
}

func (c *Config) cookie(r *http.Request) (*http.Cookie, error) {
	var b web.Body
	if err := b.ReadAll(r, maxLogin, "application/json"); err != nil {
		return nil, err
	}
	var body login
	if err := json.Unmarshal(b.Bytes(), &body, json.RejectUnknownMembers(true)); err != nil {
		return nil, web.Refuse(http.StatusBadRequest, `the body is malformed; allowed: {"token": "TOKEN"}`)
	}
	cookie, ok := c.Access.Login(body.Token)
	if !ok {
		c.Log.Warn("console: a login with an unknown token was refused", "peer", r.RemoteAddr)
		return nil, web.Refuse(http.StatusUnauthorized, "the token is not known here")
	}
	return cookie, nil
}

// finish sends a cookie without a body.
func finish(w http.ResponseWriter, r *http.Request, cookie *http.Cookie) {
	cookie.Secure = r.TLS != nil
	http.SetCookie(w, cookie)
	w.WriteHeader(http.StatusNoContent)
}
