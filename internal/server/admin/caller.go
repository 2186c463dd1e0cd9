package admin

import (
	"fmt"
	"net"
	"net/http"
	"slices"

	"github.com/weirproject/weir/internal/server/web"
)

const (
	maxActor = 100 // bytes of X-Weir-Actor, and of a token's name

	// actorField lets an authenticated caller name the user that it acts for, such as a console that
	// has one token and many users.
	actorField = "X-Weir-Actor"
)

// identify authenticates the caller, and checks the permission to write. Its errors never disclose
// whether a token is nearly right.
func (h *handler) identify(c *call, writes bool) error {
	if !h.guarded {
		// A name in the request proves nothing without authentication.
		host, _, err := net.SplitHostPort(c.request.RemoteAddr)
		if err != nil {
			host = "this machine"
		}
		c.who = "somebody at " + host
		return nil
	}
	name, mayWrite, err := h.known(c.request)
	if err != nil {
		return err
	}
	if writes && !mayWrite {
		p := refusef(http.StatusForbidden, "%s may only read", name)
		p.authenticate = `Bearer realm="weir", error="insufficient_scope"`
		return p
	}
	c.who = name
	if actor := c.request.Header.Get(actorField); actor != "" {
		if !plain(actor, maxActor) {
			return refusef(http.StatusBadRequest, "%s is %.80q; allowed: 1 to %d printable characters of ASCII",
				actorField, actor, maxActor)
		}
		c.who = fmt.Sprintf("%s by %s", actor, name)
	}
	return nil
}

// known returns the name of an authenticated caller.
func (h *handler) known(r *http.Request) (name string, mayWrite bool, err error) {
	if text, ok := web.Bearer(r.Header.Get("Authorization")); ok {
		shown := web.Hash(text)
		if i := web.Among(h.hashes, &shown); i >= 0 {
			return h.tokens[i].Name, h.tokens[i].Write, nil
		}
		p := refusef(http.StatusUnauthorized, "the token is not known here")
		p.authenticate = `Bearer realm="weir", error="invalid_token"`
		return "", false, p
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		name := r.TLS.VerifiedChains[0][0].Subject.CommonName
		listed := func(names []string) bool { return slices.Contains(names, "*") || slices.Contains(names, name) }
		if mayWrite = listed(h.writers); (mayWrite || listed(h.readers)) && plain(name, maxActor) {
			return "certificate " + name, mayWrite, nil
		}
	}
	p := refusef(http.StatusUnauthorized, "this needs a token of an operator: Authorization: Bearer TOKEN")
	p.authenticate = `Bearer realm="weir"`
	return "", false, p
}

// plain reports whether a text can be logged as it is.
func plain(text string, most int) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return text != "" && len(text) <= most
}
