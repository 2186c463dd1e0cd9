package cli

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/ruleset/redissource"
	"github.com/weirproject/weir/internal/server/admin"
)

// An adminFlags are the flags of access to the admin API.
type adminFlags struct {
	tokenFile, readTokenFile string
	certs, readCerts         []string
}

func (f *adminFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.tokenFile, "admin-token-file", "",
		"`FILE` with tokens of operators, who may change rules; one per line,\nTOKEN or NAME:TOKEN (or "+
			"WEIR_ADMIN_TOKEN)")
	flags.StringVar(&f.readTokenFile, "admin-read-token-file", "",
		"`FILE` with read-only tokens of the admin API (or WEIR_ADMIN_READ_TOKEN)")
	flags.StringSliceVar(&f.certs, "admin-certs", nil,
		"comma-separated common `NAMES` of client certificates that may change rules")
	flags.StringSliceVar(&f.readCerts, "admin-read-certs", nil,
		"comma-separated common `NAMES` of client certificates that may read rules")
}

// ledgerLayer is the name of the layer that the admin API changes.
const ledgerLayer = "ledger"

// inProcess reports whether a ledger belongs to this process: in memory, or in a file.
func inProcess(ledger string) bool {
	return ledger != "" && ledger != inStore && ledger != none && !strings.Contains(ledger, "://")
}

// An adminLedger is the ledger that the admin API changes.
type adminLedger struct {
	*ledger.Ledger
	close func()
}

// openLedger opens the ledger, and adds it to the layers. By default it is kept in the Redis of
// --store, because a block on one node alone would not stop an attack on the others. Without
// --ledger, only a ledger made by such servers is used, since a foreign one would change the
// rules here; and the server is ready without it, even if Redis is down or denies access to it.
func (v *server) openLedger(ctx context.Context, layers []ruleset.Layer) ([]ruleset.Layer, error) {
	f := &v.flags.rules.sourceFlags
	at, store := f.ledger, v.setup.store.url
	switch {
	case at == none:
		return layers, nil
	case at == "" && store == memory || inProcess(at):
		if at == memory {
			at = ""
		}
		book, err := ledger.NewMemory(at)
		if err != nil {
			return nil, err
		}
		v.ledger = &adminLedger{ledger.New(book), func() { book.Close() }}
		return append(layers, ruleset.Layer{Name: ledgerLayer, Source: book.Source(), AllowEmpty: true}), nil
	}
	redis, err := f.openRedisLedger(ctx, &v.setup.store, redissource.Own)
	if err != nil {
		return nil, err
	}
	v.ledger = &adminLedger{redis.Ledger, redis.Close}
	return append(layers, ruleset.Layer{Name: ledgerLayer, Source: redis.Source(), AllowEmpty: true}), nil
}

// openAdmin returns the handler of the admin API. Without credentials of operators it is open on
// a loopback listener, unless the API of decisions requires a token.
func (v *server) openAdmin(listener net.Listener) (http.Handler, error) {
	opts, err := v.operators(listener)
	if err != nil {
		return nil, err
	}
	if opts == nil {
		return forbidden("the admin API has no credentials: start the server with --admin-token-file, " +
			"or with --admin-certs and --http-client-ca"), nil
	}
	server := admin.Server{
		Layer:   ledgerLayer,
		Status:  v.live.keeper.Status,
		Gate:    v.gate,
		Compile: v.setup.compile,
		Log:     v.log,
	}
	if v.ledger != nil {
		server.Ledger = v.ledger.Ledger
	} else {
		server.NoLedger = noLedger
		v.log.Info("admin API without a ledger (--ledger none): keys can be reset and bans lifted, " +
			"but rules, blocks and overrides cannot be changed")
	}
	return admin.New(server, opts...)
}

// noLedger is the answer to changes that need a ledger.
const noLedger = "this server has --ledger none, so it cannot store rules and exceptions of operators: " +
	"start each server without that flag and with a --store in Redis, then a change on one is in force on all. " +
	"Resetting keys and lifting bans needs no ledger"

// operators are the options with the credentials of operators; nil: nobody has access.
func (v *server) operators(listener net.Listener) (opts []admin.Option, err error) {
	f, alone := &v.flags.admin, private(listener, &v.flags.http)
	if alone {
		opts = append(opts, admin.WithHosts("localhost", "127.0.0.1", "::1"))
	}
	warn := func(text string) { v.log.Warn(text) }
	var tokens []admin.Token
	for _, one := range []struct {
		flag, file string
		write      bool
	}{{"admin-token-file", f.tokenFile, true}, {"admin-read-token-file", f.readTokenFile, false}} {
		text, err := v.system.secret(one.flag, one.file, warn)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, adminTokens(text, one.write)...)
	}
	certs := len(f.certs)+len(f.readCerts) > 0
	if certs && v.flags.http.clientCA == "" {
		return nil, usagef("--admin-certs and --admin-read-certs need client certificates: give --http-client-ca too")
	}
	if certs {
		opts = append(opts, admin.WithCertificates(f.readCerts, f.certs))
	}
	if len(tokens) > 0 {
		opts = append(opts, admin.WithTokens(tokens...))
	}
	if !certs && len(tokens) == 0 && (!alone || v.secrets.token+v.secrets.readToken != "") {
		return nil, nil
	}
	return opts, nil
}

// adminTokens reads lines of TOKEN or NAME:TOKEN.
func adminTokens(text string, write bool) (tokens []admin.Token) {
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
		tokens = append(tokens, admin.Token{Name: name, Secret: secret, Write: write})
	}
	return tokens
}

// A forbidden handler answers every request 403, with the reason.
type forbidden string

// ServeHTTP implements http.Handler.
func (why forbidden) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusForbidden)
	w.Write([]byte(`{"type":"about:blank","title":"Forbidden","status":403,"detail":"` + string(why) + `"}` + "\n"))
}
