// Package caddylimit is a module of Caddy, http.handlers.weir, that limits requests by the rules of a file. Build a
// Caddy that has it:
//
//	xcaddy build --with github.com/weirproject/weir/contrib/caddylimit
//
// and limit the requests of a site:
//
//	weir {
//		rules /etc/caddy/weir.yaml
//		store redis://127.0.0.1:6379
//	}
//
// The directive runs after rewrite and before basic_auth. Its block, and its settings in JSON, have the words of a
// [Handler].
package caddylimit

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/weirproject/weir/engine"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/adapt"
)

func init() {
	caddy.RegisterModule(Handler{})
	httpcaddyfile.RegisterHandlerDirective("weir", parse)
	httpcaddyfile.RegisterDirectiveOrder("weir", httpcaddyfile.Before, "basic_auth")
}

// engines are the engines of all configurations, by their settings. A reload that changes none keeps the counts.
var engines = caddy.NewUsagePool()

// A Handler limits requests. The rules see the client that Caddy sees behind its trusted_proxies, and the user of
// authentication before the handler; a request has no route. An error of a handler after it has its status for rules
// with count_if.
type Handler struct {
	// Rules is a rule file, a directory of rule files, or an https URL: engine.Config.Rules. Changes are in force
	// within a second, without a reload of Caddy.
	Rules string `json:"rules"`
	// Store is "memory", the default, or the URL of a Redis, which other servers may share.
	Store string `json:"store,omitempty"`
	// Timeout bounds a call of Redis; the default is 50 ms.
	Timeout caddy.Duration `json:"timeout,omitempty"`
	// Nodes is the number of servers that share the store.
	Nodes int `json:"nodes,omitempty"`
	// State is a file that keeps the counts in memory over restarts.
	State string `json:"state,omitempty"`

	key     string
	limited func(http.Handler) http.Handler
}

// CaddyModule implements caddy.Module.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.weir", New: func() caddy.Module { return new(Handler) }}
}

// Provision implements caddy.Provisioner.
func (h *Handler) Provision(ctx caddy.Context) error {
	if h.Rules == "" {
		return errors.New("weir: no rules; name a rule file, a directory of rule files or a URL")
	}
	key, _ := json.Marshal(h) // texts and numbers
	value, _, err := engines.LoadOrNew(string(key), func() (caddy.Destructor, error) {
		limits, err := engine.Open(context.WithoutCancel(ctx), engine.Config{Rules: h.Rules, Store: h.Store,
			Timeout: time.Duration(h.Timeout), Nodes: h.Nodes, State: h.State, Log: ctx.Slogger()})
		return &shared{limits}, err
	})
	if err != nil {
		return err
	}
	h.key = string(key)
	limits := value.(*shared)
	_ = ctx.GetMetricsRegistry().Register(limits.Metrics()) // another handler with these settings may have done so
	h.limited, err = limits.Middleware(&httplimit.RuleOptions{User: user})
	return err
}

// Cleanup implements caddy.CleanerUpper.
func (h *Handler) Cleanup() error {
	if h.key == "" {
		return nil
	}
	_, err := engines.Delete(h.key)
	return err
}

// shared is an engine that handlers share.
type shared struct{ *engine.Engine }

// Destruct implements caddy.Destructor.
func (s *shared) Destruct() error { return s.Close() }

// user is the user of authentication in Caddy.
func user(r *http.Request) string {
	values, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if values == nil {
		return ""
	}
	id, _ := values.GetString("http.auth.user.id")
	return id
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (err error) {
	peer, given := r.RemoteAddr, r
	if client, ok := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string); ok && client != "" {
		given = r.WithContext(r.Context())
		given.RemoteAddr = net.JoinHostPort(client, "0")
	}
	adapt.Serve(h.limited, w, given, func(needed http.ResponseWriter, r *http.Request) (status int) {
		if r.RemoteAddr = peer; needed == nil {
			needed = w
		}
		if err = next.ServeHTTP(needed, r); err != nil {
			return statusOf(err)
		}
		return 0
	})
	return err
}

// statusOf is the status that Caddy gives an error.
func statusOf(err error) int {
	var failure caddyhttp.HandlerError
	if errors.As(err, &failure) && failure.StatusCode != 0 {
		return failure.StatusCode
	}
	return http.StatusInternalServerError
}
