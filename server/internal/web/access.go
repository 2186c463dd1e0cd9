// Package web has the common parts of the server's HTTP APIs: access control, problem documents
// (RFC 9457), strict reading of bodies, and OpenAPI documents made from tables of operations.
package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirproject/weir/pathform"
)

const (
	minToken = 16  // bytes; a shorter token can be guessed
	maxActor = 100 // bytes of X-Weir-Actor, and of a token's name

	// actorField lets an authenticated caller name the user that it acts for, such as a console that
	// has one token and many users.
	actorField = "X-Weir-Actor"
)

// A Token authorises a caller.
type Token struct {
	Name   string // of the caller; "" if callers have no names
	Secret string
	Write  bool // otherwise read-only
}

// A Config configures the access to an API.
type Config struct {
	Tokens []Token
	// The common names of verified TLS client certificates that may read, and write; "*" is any.
	Readers, Writers []string
	// Loopback refuses host names other than localhost and loopback addresses. A server that listens
	// on loopback without tokens needs it, because any web page's DNS name can resolve to 127.0.0.1.
	Loopback bool
	// Credential is the token in sentences: "token of an operator". The default is "token".
	Credential string
	Named      bool // each token needs a name
	Sessions   bool // the cookies of Login are accepted
	// Unknown, if non-nil, is called for each token that is not known, with its sender's address, which may be "".
	Unknown func(peer string)
}

// An Access accepts or refuses the requests to an API. Without tokens and certificates everybody may do
// everything: then listen on loopback only. It keeps hashes of the tokens, and is safe for concurrent
// use.
type Access struct {
	Config
	hashes      []hash // of Tokens, which have no secrets here
	crossOrigin http.CrossOriginProtection
	ended       endedSessions
}

// A hash is the hash of a token, so that memory holds no secret and all comparisons have one length.
type hash [sha256.Size]byte

// NewAccess checks the configuration.
func NewAccess(c Config) (*Access, error) {
	a := &Access{Config: c}
	a.Tokens = slices.Clone(c.Tokens)
	if c.Credential == "" {
		a.Credential = "token"
	}
	var err error
	for i := range a.Tokens {
		t := &a.Tokens[i]
		if len(t.Secret) < minToken || strings.ContainsAny(t.Secret, " \t\r\n") {
			err = errors.Join(err, fmt.Errorf("a token is shorter than %d characters or contains white space; "+
				"make one with: openssl rand -hex 32", minToken))
		}
		if (t.Name != "" || c.Named) && !plain(t.Name) {
			err = errors.Join(err, fmt.Errorf("the name of a token is %.80q; "+
				"allowed: 1 to %d printable characters of ASCII", t.Name, maxActor))
		}
		a.hashes = append(a.hashes, sha256.Sum256([]byte(t.Secret)))
		t.Secret = ""
	}
	return a, err
}

// Guard refuses requests from pages of other sites, and to other host names than Config allows.
func (a *Access) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		if r.Header["Sec-Fetch-Site"] != nil || r.Header["Origin"] != nil { // a browser; Check passes all others
			err = a.crossOrigin.Check(r)
		}
		switch {
		case a.Loopback && !IsLoopback(r.Host):
			Refuse(http.StatusForbidden, "host is %.80q; allowed: localhost, 127.0.0.1, ::1", r.Host).Write(w)
		case err != nil:
			Refuse(http.StatusForbidden, "the request comes from a page of another site: %v", err).Write(w)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Identify authenticates the caller, and checks the permission to write. Its errors never disclose
// whether a token is nearly right.
func (a *Access) Identify(r *http.Request, writes bool) (caller string, err error) {
	if len(a.Tokens)+len(a.Readers)+len(a.Writers) == 0 {
		return "", nil
	}
	caller, mayWrite, err := a.known(r)
	if err != nil {
		return "", err
	}
	if writes && !mayWrite {
		return "", mayOnlyRead(caller)
	}
	if actor := r.Header.Get(actorField); actor != "" && caller != "" {
		if !plain(actor) {
			return "", Refuse(http.StatusBadRequest, "%s is %.80q; allowed: 1 to %d printable characters of ASCII",
				actorField, actor, maxActor)
		}
		caller = fmt.Sprintf("%s by %s", actor, caller)
	}
	return caller, nil
}

// IdentifyToken is Identify for a protocol other than HTTP. It has the value of an Authorization field; sessions and
// certificates are not accepted. Its errors are of type *Problem.
func (a *Access) IdentifyToken(authorization string, writes bool) error {
	if len(a.Tokens) == 0 {
		return nil
	}
	text, ok := bearer(authorization)
	if !ok {
		return a.noToken()
	}
	caller, mayWrite, err := a.byToken(text, "")
	if err == nil && writes && !mayWrite {
		err = mayOnlyRead(caller)
	}
	return err
}

func mayOnlyRead(caller string) *Problem {
	if caller == "" {
		caller = "this token"
	}
	p := Refuse(http.StatusForbidden, "%s may only read", caller)
	p.authenticate = `Bearer realm="weir", error="insufficient_scope"`
	return p
}

func (a *Access) byToken(text, peer string) (name string, mayWrite bool, err error) {
	if i := a.find(sha256.Sum256([]byte(text))); i >= 0 {
		return a.Tokens[i].Name, a.Tokens[i].Write, nil
	}
	if a.Unknown != nil {
		a.Unknown(peer)
	}
	p := Refuse(http.StatusUnauthorized, "the token is not known here")
	p.authenticate = `Bearer realm="weir", error="invalid_token"`
	return "", false, p
}

func (a *Access) noToken() *Problem {
	p := Refuse(http.StatusUnauthorized, "this needs a %s: Authorization: Bearer TOKEN", a.Credential)
	p.authenticate = `Bearer realm="weir"`
	return p
}

// known returns the name of an authenticated caller.
func (a *Access) known(r *http.Request) (name string, mayWrite bool, err error) {
	if text, ok := bearer(r.Header.Get("Authorization")); ok {
		return a.byToken(text, r.RemoteAddr)
	}
	if _, i := a.session(r); i >= 0 {
		return a.Tokens[i].Name, a.Tokens[i].Write, nil
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		name := r.TLS.VerifiedChains[0][0].Subject.CommonName
		listed := func(names []string) bool { return slices.Contains(names, "*") || slices.Contains(names, name) }
		if mayWrite = listed(a.Writers); (mayWrite || listed(a.Readers)) && plain(name) {
			return "certificate " + name, mayWrite, nil
		}
	}
	return "", false, a.noToken()
}

// find returns the index of a token, or −1. It compares with every token, in constant time.
func (a *Access) find(sent hash) int {
	found := -1
	for i := range a.hashes {
		equal := subtle.ConstantTimeCompare(a.hashes[i][:], sent[:])
		found = subtle.ConstantTimeSelect(equal, i, found)
	}
	return found
}

// bearer returns the token of an Authorization field (RFC 6750); ok is false if the field has no token.
func bearer(authorization string) (token string, ok bool) {
	scheme, token, _ := strings.Cut(authorization, " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// plain reports whether a text can be logged as it is.
func plain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return text != "" && len(text) <= maxActor
}

// IsLoopback reports whether the value of a Host field is localhost or a loopback address.
func IsLoopback(host string) bool {
	name, err := pathform.Host(host)
	if err != nil || strings.EqualFold(name, "localhost") { // ParseAddr allocates its errors
		return err == nil
	}
	address, err := netip.ParseAddr(name)
	return err == nil && address.Unmap().IsLoopback()
}
