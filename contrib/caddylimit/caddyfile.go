package caddylimit

import (
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// UnmarshalCaddyfile implements caddyfile.Unmarshaler. The block has the settings by their names in JSON.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() { // a path would be the matcher
		return d.ArgErr()
	}
	for d.NextBlock(0) {
		word := d.Val()
		var value string
		if !d.AllArgs(&value) {
			return d.ArgErr()
		}
		if err := h.set(d, word, value); err != nil {
			return err
		}
	}
	return nil
}

func (h *Handler) set(d *caddyfile.Dispenser, word, value string) error {
	switch word {
	case "rules":
		h.Rules = value
	case "store":
		h.Store = value
	case "state":
		h.State = value
	case "timeout":
		timeout, err := caddy.ParseDuration(value)
		if err != nil || timeout <= 0 {
			return d.Errf("timeout is %q; allowed: a duration above 0, such as 50ms", value)
		}
		h.Timeout = caddy.Duration(timeout)
	case "nodes":
		nodes, err := strconv.Atoi(value)
		if err != nil || nodes < 1 {
			return d.Errf("nodes is %q; allowed: the number of servers that share the store, 1 or more", value)
		}
		h.Nodes = nodes
	default:
		return d.Errf("weir has no setting %q; allowed: rules, store, timeout, nodes, state", word)
	}
	return nil
}

func parse(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	limits := new(Handler)
	return limits, limits.UnmarshalCaddyfile(h.Dispenser)
}
