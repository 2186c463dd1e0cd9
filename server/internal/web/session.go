package web

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	sessionCookie = "weir_session"
	sessionPath   = "/v1/admin/" // pages of other paths, such as those behind a gateway, do not get the cookie
	sessionLasts  = 12 * time.Hour

	sessionID    = 16                             // bytes
	sessionStart = sessionID + 8                  // of the code; before it are ID and end
	sessionSize  = sessionStart + sha256.Size     // bytes
	sessionSalt  = "weir console session\x00\x01" // so that no other code has the same meaning

	maxEnded = 10_000
)

// A session is a cookie for browsers, which stands for a token: an ID, the end in seconds, and a code over both,
// keyed by the hash of the token. Every server with the same token accepts it, also after a restart, as long as it has
// the token. A table of sessions would be simpler, but behind a load balancer each request can reach
// another server.
type session [sessionSize]byte

func (s *session) id() [sessionID]byte { return [sessionID]byte(s[:]) }

func (s *session) ends() time.Time {
	return time.Unix(int64(binary.BigEndian.Uint64(s[sessionID:])), 0)
}

// DropSession removes the cookie of sessions from header fields. A browser sends it to every port of a host, so a
// gateway that forwarded it would hand an operator's session to the service.
func DropSession(h http.Header) {
	lines := h["Cookie"]
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, sessionCookie) }) {
		return
	}
	var kept []string
	for _, line := range lines {
		pairs := slices.DeleteFunc(strings.Split(line, ";"), isSession)
		if rest := strings.TrimSpace(strings.Join(pairs, ";")); rest != "" {
			kept = append(kept, rest)
		}
	}
	if h["Cookie"] = kept; kept == nil {
		delete(h, "Cookie")
	}
}

func isSession(pair string) bool {
	name, _, _ := strings.Cut(pair, "=")
	return strings.TrimSpace(name) == sessionCookie
}

// code is the code of a session for the token with this hash.
func (s *session) code(token *hash) []byte {
	mac := hmac.New(sha256.New, token[:])
	mac.Write([]byte(sessionSalt))
	mac.Write(s[:sessionStart])
	return mac.Sum(nil)
}

// endedSessions are the sessions that ended by logout on this server, until their time is over. The zero value is
// ready.
type endedSessions struct {
	mutex sync.Mutex
	until map[[sessionID]byte]time.Time
}

func (e *endedSessions) add(s *session) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.until == nil {
		e.until = make(map[[sessionID]byte]time.Time)
	}
	if len(e.until) >= maxEnded {
		now := time.Now()
		maps.DeleteFunc(e.until, func(_ [sessionID]byte, until time.Time) bool { return until.Before(now) })
	}
	for id := range e.until { // any of them goes if none has expired
		if len(e.until) < maxEnded {
			break
		}
		delete(e.until, id)
	}
	e.until[s.id()] = s.ends()
}

func (e *endedSessions) has(s *session) bool {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	_, ended := e.until[s.id()]
	return ended
}

// Login makes the cookie of a session for a token; ok is false if the token is not known.
func (a *Access) Login(token string) (cookie *http.Cookie, ok bool) {
	i := a.find(sha256.Sum256([]byte(token)))
	if i < 0 {
		return nil, false
	}
	var s session
	_, _ = rand.Read(s[:sessionID]) // it never fails
	binary.BigEndian.PutUint64(s[sessionID:], uint64(time.Now().Add(sessionLasts).Unix()))
	copy(s[sessionStart:], s.code(&a.hashes[i]))
	return newCookie(base64.RawURLEncoding.EncodeToString(s[:]), int(sessionLasts/time.Second)), true
}

// Logout ends the session of a request, on this server, and returns the cookie that deletes the browser's.
func (a *Access) Logout(r *http.Request) *http.Cookie {
	if s, token := a.session(r); token >= 0 {
		a.ended.add(s)
	}
	return newCookie("", -1)
}

// newCookie makes a cookie that scripts cannot read, and that pages of other sites do not send. Set Secure if the
// connection has TLS.
func newCookie(value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: sessionCookie, Value: value, Path: sessionPath, MaxAge: seconds, HttpOnly: true,
		SameSite: http.SameSiteStrictMode}
}

// session returns the session of a request, and the index of its token, or −1. Like find it compares with every token.
func (a *Access) session(r *http.Request) (s *session, token int) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil || !a.Sessions {
		return nil, -1
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cookie.Value)
	if err != nil || len(raw) != sessionSize {
		return nil, -1
	}
	s, token = (*session)(raw), -1
	for i := range a.hashes {
		if hmac.Equal(s[sessionStart:], s.code(&a.hashes[i])) {
			token = i
		}
	}
	if token >= 0 && (!time.Now().Before(s.ends()) || a.ended.has(s)) {
		token = -1
	}
	return s, token
}

// HasSession reports whether the caller is known by a session, which Logout ends.
func (a *Access) HasSession(r *http.Request) bool {
	_, token := a.session(r)
	return token >= 0 && r.Header.Get("Authorization") == ""
}
