package cli

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/doors/admin"
	"github.com/weirproject/weir/rules/ledger"
	"github.com/weirproject/weir/rules/source"
)

// An adminFlags says who may change rules while the server runs.
type adminFlags struct {
	tokenFile, readTokenFile string
	certs, readCerts         []string
}

func (f *adminFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.tokenFile, "admin-token-file", "", "`FILE` with the tokens of operators, who may change rules: a line each,\nTOKEN or NAME:TOKEN (or WEIR_ADMIN_TOKEN)")
	flags.StringVar(&f.readTokenFile, "admin-read-token-file", "", "`FILE` with tokens that may only look at rules (or WEIR_ADMIN_READ_TOKEN)")
	flags.StringSliceVar(&f.certs, "admin-certs", nil, "common `NAMES` of client certificates whose owners may change rules, with commas")
	flags.StringSliceVar(&f.readCerts, "admin-read-certs", nil, "common `NAMES` of client certificates whose owners may look at rules, with commas")
}

// ledgerLayer is what the admin API calls the layer that it changes.
const ledgerLayer = "ledger"

// inProcess reports whether a ledger is this process' own: in memory, or in a file.
func inProcess(ledger string) bool {
	return ledger != "" && ledger != inStore && ledger != none && !strings.Contains(ledger, "://")
}

// An adminLedger is the ledger that this server changes; nil where it has none.
type adminLedger struct {
	*ledger.Ledger
	close func()
}

// openLedger opens the ledger, and adds it to the layers. A server that counts in Redis keeps it
// there, so that it can block somebody in a first attack: what is blocked on one node alone would
// pass on the next. Only a ledger that such servers have made is used unasked: one that somebody
// else keeps in that Redis would change the rules here. Nor is that one waited for: while Redis is
// away, or its user may do no more than count, the server is as ready as without it.
func (v *server) openLedger(ctx context.Context, layers []source.Layer) ([]source.Layer, error) {
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
		return append(layers, source.Layer{Name: ledgerLayer, Source: book.Source(), AllowEmpty: true}), nil
	}
	redis, err := f.openRedisLedger(ctx, &v.setup.store)
	if err != nil {
		return nil, err
	}
	v.ledger = &adminLedger{redis.Ledger, redis.Close}
	return append(layers, source.Layer{Name: ledgerLayer, Source: redis.Source(), AllowEmpty: true}), nil
}

// openAdmin is the door for operators. Where nobody has said who they are, they are who is
// on this machine, unless others than operators are asked for a token too.
func (v *server) openAdmin(listener net.Listener) (http.Handler, error) {
	opts, err := v.operators(listener)
	if err != nil {
		return nil, err
	}
	switch {
	case opts == nil:
		return forbidden("nobody may change the rules of this server: start it with --admin-token-file, or with --admin-certs and --http-client-ca"), nil
	}
	server := admin.Server{Layer: ledgerLayer, Status: v.live.keeper.Status, Gate: v.gate, Compile: v.setup.compile, Log: v.log}
	if v.ledger != nil {
		server.Ledger = v.ledger.Ledger
	} else {
		server.NoLedger = noLedger
		v.log.Info("operators can reset keys and lift bans, but change no rules and block nobody: this server has --ledger none")
	}
	return admin.New(server, opts...)
}

// noLedger is what to do about it.
const noLedger = "this server has --ledger none, and so nowhere to keep rules and exceptions of operators: start each server without that flag " +
	"and with a --store in Redis, and what is changed at one is in force on all. Keys can be reset and bans lifted without a ledger"

// operators are who may come in; nil: nobody.
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
		return nil, usagef("--admin-certs and --admin-read-certs are names in client certificates: give --http-client-ca too")
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

// A closed door says why it is.
type forbidden string

// ServeHTTP implements http.Handler.
func (why forbidden) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusForbidden)
	w.Write([]byte(`{"type":"about:blank","title":"Forbidden","status":403,"detail":"` + string(why) + `"}` + "\n"))
}
