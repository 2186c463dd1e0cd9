package cli

import (
	"net"
	"net/http"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/engine"
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
		Layer:   engine.LedgerLayer,
		Status:  v.engine.Status,
		Gate:    v.engine.Gate,
		Compile: v.engine.Compile,
		Ledger:  v.engine.Book,
		Log:     v.log,
	}
	if server.Ledger == nil {
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
