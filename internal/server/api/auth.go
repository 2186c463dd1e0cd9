package api

import (
	"fmt"
	"net/http"

	"github.com/weirproject/weir/internal/server/web"
)

// hashed are tokens as they are kept.
func (a *api) hashed(tokens []string) (list []web.Token) {
	for _, text := range tokens {
		token, err := web.NewToken(text)
		if err != nil {
			a.problem = fmt.Errorf("httpapi: %w", err)
		}
		list = append(list, token)
	}
	return list
}

// authorize asks for a token (RFC 6750). What it says never tells whether a token is nearly
// right.
func (a *api) authorize(op *operation, r *http.Request) error {
	if !a.guarded {
		return nil
	}
	text, ok := web.Bearer(r.Header.Get("Authorization"))
	if !ok {
		return &problem{status: http.StatusUnauthorized, detail: "this needs a token: Authorization: Bearer TOKEN", authenticate: `Bearer realm="weir"`}
	}
	shown := web.Hash(text)
	mayWrite, mayRead := web.Among(a.write, &shown) >= 0, web.Among(a.read, &shown) >= 0
	switch {
	case mayWrite || mayRead && !op.writes:
		return nil
	case mayRead:
		return &problem{status: http.StatusForbidden, detail: "this token may only read", authenticate: `Bearer realm="weir", error="insufficient_scope"`}
	}
	return &problem{status: http.StatusUnauthorized, detail: "the token is not known here", authenticate: `Bearer realm="weir", error="invalid_token"`}
}
