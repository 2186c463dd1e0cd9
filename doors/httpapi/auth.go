package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
)

// minToken is the shortest token: a shorter one can be guessed.
const minToken = 16

// hashed are tokens as they are kept: who reads the memory finds none of them, and all
// comparisons are of one length.
func (a *api) hashed(tokens []string) (list [][sha256.Size]byte) {
	for _, token := range tokens {
		if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
			a.problem = errors.New("httpapi: a token is shorter than 16 characters, or has space in it; make one with: openssl rand -hex 32")
		}
		list = append(list, sha256.Sum256([]byte(token)))
	}
	return list
}

// authorize asks for a token (RFC 6750). What it says never tells whether a token is nearly
// right.
func (a *api) authorize(op *operation, r *http.Request) error {
	if !a.guarded {
		return nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return &problem{status: http.StatusUnauthorized, detail: "this needs a token: Authorization: Bearer TOKEN", authenticate: `Bearer realm="weir"`}
	}
	hash := sha256.Sum256([]byte(strings.TrimSpace(token)))
	mayWrite, mayRead := among(a.write, &hash), among(a.read, &hash)
	switch {
	case mayWrite || mayRead && !op.writes:
		return nil
	case mayRead:
		return &problem{status: http.StatusForbidden, detail: "this token may only read", authenticate: `Bearer realm="weir", error="insufficient_scope"`}
	}
	return &problem{status: http.StatusUnauthorized, detail: "the token is not known here", authenticate: `Bearer realm="weir", error="invalid_token"`}
}

// among compares with all of them, in constant time.
func among(list [][sha256.Size]byte, hash *[sha256.Size]byte) bool {
	found := 0
	for i := range list {
		found |= subtle.ConstantTimeCompare(list[i][:], hash[:])
	}
	return found == 1
}
