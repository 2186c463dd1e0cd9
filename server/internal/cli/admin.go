package cli

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/server/internal/admin"
	"github.com/weirproject/weir/server/internal/console"
	"github.com/weirproject/weir/server/internal/web"
)

// openAdmin returns the handlers of the admin API and of POST /-/reload. Without credentials of
// operators the API is open on a loopback listener, unless the API of decisions requires a token. The
// callers of that API may reload.
func (v *server) openAdmin(access, callers *web.Access) (operators, reload http.Handler, err error) {
	server := admin.Server{
		Layer:      engine.LedgerLayer,
		Status:     v.engine.Status,
		Gate:       v.engine.Gate,
		Gateway:    v.engine.HTTPOptions(),
		RateLimits: v.rlsOptions(),
		Compile:    v.engine.Compile,
		Ledger:     v.engine.Book,
		Reload:     v.reload,
		ResetRule:  v.engine.ResetRule,
		Mistakes:   mistakesOf,
		Log:        v.log,
		Mark:       v.engine.Mark,
		NoLedger:   noLedger,
		Access:     callers,
		Also:       console.Operations(),
		Services:   v.upstreams.Services,
		Routes:     v.upstreams.Routes,
	}
	if v.engine.CanSearchAudit() {
		server.Audit = v.engine.SearchAudit
	}
	if reader := v.engine.Telemetry(); reader != nil {
		server.Telemetry = reader
	}
	if reload, err = admin.NewReload(server); err != nil {
		return nil, nil, err
	}
	if server.Access = access; access == nil {
		return http.HandlerFunc(noCredentials), reload, nil
	}
	if server.Ledger == nil {
		v.log.Info("admin API without a ledger (--ledger none): keys can be reset and bans lifted, " +
			"but rules, blocks and overrides cannot be changed")
	}
	operators, err = admin.New(server)
	return operators, reload, err
}

func noCredentials(w http.ResponseWriter, _ *http.Request) {
	web.Refuse(http.StatusForbidden, "the admin API has no credentials: start the server with --admin-token-file, "+
		"or with server.admin.certs and server.http.client_ca").Write(w)
}

// noLedger is the answer to changes that need a ledger.
const noLedger = "this server has --ledger none, so it cannot store rules and exceptions of operators: " +
	"start each server without that setting and with a --store in Redis, then a change on one is in force on all. " +
	"Resetting keys and lifting bans needs no ledger"

// operators is the access of operators; nil: no caller has access.
func (v *server) operators(l *listener) (*web.Access, error) {
	e, alone := v.engine, l.private()
	c := web.Config{Credential: "token of an operator", Named: true, Loopback: alone, Sessions: true,
		Readers: e.AdminReadCerts, Writers: e.AdminCerts}
	warn := func(text string) { v.log.Warn(text) }
	for _, one := range []struct {
		setting, file string
		write         bool
	}{{"server.admin.token_file", e.AdminTokenFile, true},
		{"server.admin.read_token_file", e.AdminReadTokenFile, false}} {
		text, err := v.system.secret(one.setting, one.file, warn)
		if err != nil {
			return nil, err
		}
		c.Tokens = append(c.Tokens, adminTokens(text, one.write)...)
	}
	certs := len(e.AdminCerts)+len(e.AdminReadCerts) > 0
	if certs && v.http.ClientCA == "" {
		return nil, program.Usagef("server.admin.certs and read_certs need client certificates: give " +
			"server.http.client_ca too")
	}
	if !certs && len(c.Tokens) == 0 && (!alone || v.secrets.token+v.secrets.readToken != "") {
		return nil, nil
	}
	c.Unknown = v.unknownTokens("admin")
	return web.NewAccess(c)
}

// unknownTokens counts and logs tokens that an API does not know: a caller may be guessing.
func (v *server) unknownTokens(api string) func(peer string) {
	var n atomic.Int64
	v.engine.Metrics.Count("weir_unknown_tokens_total", "Requests with a token that is not known, by API: admin, "+
		"http, grpc. A token has 16 characters and more, so guesses are hopeless; but somebody may be trying.", n.Load,
		"api", api)
	return func(peer string) {
		n.Add(1)
		v.repeated.warn("a request has a token that is not known here", "api", api, "peer", peer)
	}
}

// callers is the access to the API of decisions. Without tokens, other host names than localhost are
// refused on a private listener: otherwise a web page could send requests by DNS rebinding, where its
// own host name resolves to 127.0.0.1.
func (v *server) callers(l *listener, api string) (*web.Access, error) {
	var c web.Config
	for _, token := range []web.Token{{Secret: v.secrets.readToken}, {Secret: v.secrets.token, Write: true}} {
		if token.Secret != "" {
			c.Tokens = append(c.Tokens, token)
		}
	}
	c.Loopback = c.Tokens == nil && l.private()
	if c.Tokens != nil {
		c.Unknown = v.unknownTokens(api)
	}
	return web.NewAccess(c)
}

// adminTokens reads lines of TOKEN or NAME:TOKEN.
func adminTokens(text string, write bool) (tokens []web.Token) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, secret, named := strings.Cut(line, ":")
		if !named {
			name, secret = "operator", line
			if !write {
				name = "reader"
			}
		}
		tokens = append(tokens, web.Token{Name: name, Secret: secret, Write: write})
	}
	return tokens
}
