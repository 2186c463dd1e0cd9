package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

const oneRule = "rules: [{name: a, limit: 1/1h}]\n"

// TestInvalidConfigurationsDoNotStart: each fails with its exit code and a message that says what to change. $DIR is a
// directory with a rule file, rules.yaml.
func TestInvalidConfigurationsDoNotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "rules.yaml", oneRule)
	write(t, dir, "wrong.yaml", "rules: [{nam: a}]\n")
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "short", "short\n")
	write(t, dir, "proxies.yaml", "server: {trusted_proxies: [10.0.0.0/8]}\n"+oneRule)
	for _, test := range []struct {
		args, env string
		code      int
		says      string
	}{
		// what is without authentication on a public address
		{"--http 0.0.0.0:0", "", 2, "would be open without authentication: give it a token (--token-file or WEIR_TOKEN; openssl rand -hex 32 makes one)"},
		{"--http :0", "", 2, "--open allows it"},
		{"--http [::]:0", "", 2, "--open allows it"},
		{"--resp 0.0.0.0:0", "", 2, "the resp listener at [::]:"},
		{"--resp 0.0.0.0:0", "", 2, "give it a password"},
		{"--resp 0.0.0.0:0", "WEIR_TOKEN=0123456789abcdef", 2, "the resp listener"},
		{"--set server.http.proxy_protocol=true --config $DIR/proxies.yaml", "", 2, "would be open without authentication"},
		// secrets
		{"--token-file $DIR/short", "", 2, "has 5 bytes; allowed: 16 or more"},
		{"", "WEIR_TOKEN=short", 2, "WEIR_TOKEN has 5 bytes"},
		{"--token-file $DIR/none", "", 1, "server.token_file: open "},
		{"--token-file $DIR/short", "WEIR_TOKEN=0123456789abcdef", 2, "both server.token_file and WEIR_TOKEN are given; leave one out"},
		// flags and variables
		{"--htpp :80", "", 2, "unknown flag --htpp; did you mean --http?"},
		{"-x", "", 2, "unknown flag -x; see weir serve --help"},
		{"--store", "", 2, "flag --store needs a value: place of the counts: memory, or the URL of a Redis, such as redis://host:63"},
		{"--set server.store.timeout=5", "", 2, `--set: server.store.timeout is "5"; allowed: a time with its unit from 1ms to 1h, such as 10s or 500`},
		{"--set server.store.timeout=0s", "", 2, `--set: server.store.timeout is "0s"; allowed: a time with its unit from 1ms to 1h, such as 10s or 50`},
		{"--set server.max_keys=many", "", 2, `--set: server.max_keys is "many"; allowed: a whole number from 1 to 1073741824, unquoted`},
		{"--set server.max_keys=0", "", 2, `--set: server.max_keys is "0"; allowed: a whole number from 1 to 1073741824, unquoted`},
		{"--set server.max_bytes=1GiB", "", 2, `--set: server.max_bytes is "1GiB"; allowed: a whole number from 1 to 1125899906842624, unquoted`},
		{"--set server.max_bytes=0", "", 2, `--set: server.max_bytes is "0"; allowed: a whole number from 1 to 1125899906842624, unquoted`},
		{"", "WEIR_STORE_TIMEOUT=5", 2, `WEIR_STORE_TIMEOUT: server.store.timeout is "5"; allowed: a time with its unit from 1ms to 1h, such `},
		{"", "WEIR_OPEN=perhaps", 2, `WEIR_OPEN: server.open is "perhaps"; allowed: true or false, unquoted`},
		{"--rules rules.yaml", "", 2, "a rule file is given with --config"},
		{"--audit redis", "", 2, "server.audit is redis, which stands for the Redis of server.store, but that is memory; give the URL of a Redis"},
		{"--audit a.log,b.log", "", 2, "server.audit has two of the kind file; allowed: one of each"},
		{"--audit x.log,", "", 2, "--audit: server.audit[1] has no value; give it one, or leave it out"},
		{"--audit $DIR", "", 2, "is a directory"},
		{"--audit redis://127.0.0.1:1/x", "", 2, `server.audit: redis://127.0.0.1:1/x: URL database is "not a number"; allowed: a number from 0, as in`},
		{"--audit x.log --set server.audit.keys=some", "", 2, `--set: server.audit.keys is "some"; allowed: shown, hashed, hidden`},
		{"--audit x.log --set server.audit.keys=hashed", "", 2, "server.audit.keys is hashed, and there is no secret for it: addresses could be found by trying all o"},
		{"--audit x.log --set server.audit.keep=0", "", 2, `--set: server.audit.keep is "0"; allowed: a whole number from 1 to 100000000, unquoted`},
		{"--audit x.log --set server.audit.file_size=0", "", 2, `--set: server.audit.file_size is "0"; allowed: a whole number from 1 to 100000, unquoted`},
		{"--set server.alerts=loud", "", 2, `server.alerts: a setting is "loud"; allowed: on, off, or with commas NAME=VALUE of reject_share, degraded`},
		{"--set server.alerts=reject_share=200%", "", 2, `server.alerts: reject_share is "200%"; allowed: a percentage above 0% up to 100%, or off`},
		{"--set server.alert.language=fr", "", 2, `--set: server.alert.language is "fr"; allowed: en, zh`},
		{"--set server.alert.format=xml", "", 2, `--set: server.alert.format is "xml"; allowed: json, slack, feishu, dingtalk`},
		{"", "WEIR_ALERT_WEBHOOK=ftp://secret.example", 2, "server.alert.webhook_file: it is no URL of a webhook; allowed: http:// or https:// with a host"},
		{"", "WEIR_ALERT_SECRET=0123456789abcdef", 2, "there is a secret for alerts and no webhook"},
		{"--set server.alerts=off", "WEIR_ALERT_WEBHOOK=http://127.0.0.1:1/hook", 2, "there is a webhook for alerts, but server.alerts is off; leave one of them out"},
		{"--log-level loud", "", 2, `--log-level: server.log.level is "loud"; allowed: debug, info, warn, error`},
		{"--log-format xml", "", 2, `--log-format: server.log.format is "xml"; allowed: text, json`},
		{"--set server.path_form=loose", "", 2, `--set: server.path_form has "loose"; allowed: drop-trailing-slash, ignore-case, refuse-parameters, a`},
		{"--trusted-proxies here", "", 2, `--trusted-proxies: server.trusted_proxies has "here"; allowed: an address such as 192.0.2.7, or a ne`},
		{"--trusted-proxies 0.0.0.0/0", "", 2, "0.0.0.0/0"},
		{"--set server.client_header=X-Client-IP", "", 2, `--set: server.client_header is "X-Client-IP"; allowed: X-Forwarded-For, Forwarded, X-Real-IP, CF-Con`},
		{"rules.yaml", "", 2, `weir serve takes no argument, but was given "rules.yaml"`},
		{"--set server.shutdown_timeout=-1s", "", 2, `--set: server.shutdown_timeout is "-1s"; allowed: a time with its unit from 1ms to 24h, such as 10s `},
		// files
		{"--config $DIR/none.yaml", "", 1, "no such file: "},
		{"--config $DIR/empty", "", 1, "empty has no files of rules"},
		{"--config http://203.0.113.1/weir.yaml", "", 2, "allowed: https, or http on this machine"},
		{"--rules redis", "", 2, "server.rules is redis, which stands for the Redis of server.store, but that is memory; give the URL of a Redis"},
		{"--rules postgres://127.0.0.1", "", 2, `server.rules: postgres://127.0.0.1: URL scheme is "postgres"; allowed: redis://, rediss:// (TLS), un`},
		{"--ledger redis", "", 2, "server.ledger is redis, which stands for the Redis of server.store, but that is memory; give the URL of a Redis"},
		{"--set server.rules.wait=0s", "", 2, `--set: server.rules.wait is "0s"; allowed: a time with its unit from 1ms to 24h, such as 10s or 500m`},
		{"--rules redis://127.0.0.1:1 --set server.rules.refresh=1ms", "", 2, `--set: server.rules.refresh is "1ms"; allowed: a time with its unit from 100ms to 24h, such as 10s o`},
		{"--config https://127.0.0.1:1/x --set server.config.poll=500ms", "", 2, "server.config.poll is 500ms; allowed for a URL: 1s to 24h"},
		{"--config $DIR/wrong.yaml", "", 1, `wrong.yaml:1:10: unknown field "nam"; did you mean "name"?`},
		{"--config $DIR/rules.yaml --limit 5/10s", "", 2, "both --config and --limit are given; write the limit into"},
		{"--limit 5/10", "", 2, `weir: --limit: limit is "5/10"; allowed: a period with its unit`},
		{"--limit 5/10s --limit nothing", "", 2, `weir: --limit: limit is "nothing"; allowed: `},
		{"--limit", "", 2, "flag --limit needs a value"},
		// front ends
		{"--gateway 127.0.0.1:0", "", 2, "server.gateway has no upstream: give --upstream http://host:port, or --upstream demo, or a --config "},
		{"--upstream 127.0.0.1:3000 --gateway 127.0.0.1:0", "", 2, `server.upstream is "127.0.0.1:3000"; allowed: demo, or a URL such as http://127.0.0.1:3000`},
		{"--upstream ftp://127.0.0.1 --gateway 127.0.0.1:0", "", 2, "the scheme http, https or h2c"},
		{"--http off", "", 2, "no listener is on: leave out --http off, or give --resp, --grpc or --upstream"},
		{"--http 127.0.0.1", "", 2, `server.http: address is "127.0.0.1"; allowed: host:port such as 127.0.0.1:8080 or :8080, unix:///pat`},
		{"--http fd:http", "", 2, `server.http: address is "fd:http"; allowed: fd: and the name of a socket that the service manager pa`},
		{"--http 127.0.0.1:http", "", 2, "a port from 0"},
		{"--http 203.0.113.1:0", "", 1, "server.http: listen tcp 203.0.113.1:0: bind: cannot assign requested address"},
		{"--http unix:http.sock", "", 2, "an absolute path, as in unix:///run/weir.sock"},
		{"--set server.http.tls_cert=cert.pem", "", 2, "server.http.tls_cert has 1 files and server.http.tls_key 0; each certificate needs its key, in the s"},
		{"--set server.http.tls_cert=a.pem,b.pem --set server.http.tls_key=a.key", "", 2, "server.http.tls_cert has 2 files and server.http.tls_key 1; each certificate needs its key, in the s"},
		{"--resp 127.0.0.1:0 --set server.resp.client_ca=ca.pem", "", 2, "server.resp.client_ca needs TLS: give server.resp.tls_cert and server.resp.tls_key"},
		{"--set server.http.tls_cert=none.pem --set server.http.tls_key=none.pem", "", 1, "none.pem"},
		{"--set server.gateway.max_connections=0", "", 2, `--set: server.gateway.max_connections is "0"; allowed: a whole number from 1 to 1073741824, unquoted`},
		{"--http off --metrics 127.0.0.1:0", "", 2, "no listener is on"},
		{"--set server.http.proxy_protocol=true", "", 2, "the networks of your balancers"},
		// stores
		{"--store postgres://127.0.0.1", "", 2, "redis://"},
		{"--store redis://127.0.0.1:6379/none", "", 2, "the store redis://127.0.0.1:6379/none"},
	} {
		args := strings.Fields(strings.ReplaceAll(test.args, "$DIR", dir))
		if !strings.Contains(test.args, "--http ") {
			args = append([]string{"--http", "127.0.0.1:0"}, args...)
		}
		r := call{dir: dir, env: strings.Fields(test.env)}.run(t, append([]string{"serve"}, args...)...)
		if r.code != test.code || !strings.Contains(r.err, test.says) || r.out != "" {
			t.Errorf("serve %s %s\n%v\nwant exit %d and: %s", test.env, test.args, r, test.code, test.says)
		}
		if lines := strings.Count(r.err, "\n"); lines > 6 {
			t.Errorf("serve %s: %d lines, of which nobody reads the first\n%s", test.args, lines, r.err)
		}
	}
}

// TestPrecedence: flags beat variables, variables beat the file. The stores cannot be
// reached, which is no reason not to start.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "rules.yaml", "server: {store: redis://user:secret@127.0.0.1:1/1}\n"+oneRule)
	const variable = "WEIR_STORE=redis://:secret@127.0.0.1:1/2"
	for _, test := range []struct{ args, env, want string }{
		{"", "", "memory of this process"},
		{"--config " + file, "", "redis://***@127.0.0.1:1/1"},
		{"", "WEIR_CONFIG=" + file, "redis://***@127.0.0.1:1/1"},
		{"--config " + file, variable, "redis://***@127.0.0.1:1/2"},
		{"--config " + file + " --store redis://127.0.0.1:1/3", variable, "redis://127.0.0.1:1/3"},
		{"--config " + file + " --store memory", variable, "memory of this process"},
		{"--config " + file, "WEIR_STORE=", "redis://***@127.0.0.1:1/1"},
	} {
		p := call{env: strings.Fields(test.env)}.serve(t, strings.Fields(test.args)...)
		if !strings.Contains(p.banner, "  "+test.want) {
			t.Errorf("%s %s\n%swant %s", test.env, test.args, p.banner, test.want)
		}
		p.end()
		if all := p.banner + p.logs(); strings.Contains(all, "secret") {
			t.Errorf("%s %s: the password is shown\n%s", test.env, test.args, all)
		}
	}
}

func TestUnknownVariablesAreLogged(t *testing.T) {
	t.Parallel()
	p := call{env: []string{"WEIR_STOR=x", "WEIR_NONSENSE=1", "WEIR_SERVICE_HOST=10.0.0.1", "WEIR_PORT_8080_TCP=x", "WEIR_TOKEN=0123456789abcdef"}}.serve(t)
	p.end()
	logs := p.logs()
	if !strings.Contains(logs, "unknown environment variable WEIR_STOR; did you mean WEIR_STORE?") ||
		!strings.Contains(logs, "unknown environment variable WEIR_NONSENSE") || strings.Count(logs, "unknown environment variable") != 2 {
		t.Errorf("the logs are\n%s", logs)
	}
}

func TestReadableSecretFileIsLogged(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "token", "0123456789abcdef\n")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	p := call{}.serve(t, "--token-file", file)
	p.end()
	if !strings.Contains(p.logs(), filepath.Base(file)+" can be read by other users: chmod 600") {
		t.Errorf("the logs are\n%s", p.logs())
	}
}

func TestOpenServesWithoutAuthentication(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--http", "0.0.0.0:0", "--open")
	if status, _, _ := post(t, p.at("http")+"/v1/decide", `{"request": {"path": "/"}}`); status != 200 {
		t.Errorf("%d", status)
	}
	p.end()
	if !strings.Contains(p.logs(), "without authentication on a public address") {
		t.Errorf("the logs are\n%s", p.logs())
	}
}

func TestLogsAsJSON(t *testing.T) {
	t.Parallel()
	p := &process{t: t, command: exec.Command(program, "serve", "--log-format", "json", "--http", "127.0.0.1:0"), ended: make(chan error, 1)}
	var out bytes.Buffer
	p.command.Env, p.command.Stdout, p.command.Stderr = call{}.environ(), &out, &p.log
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.command.Process.Kill() })
	go func() { p.ended <- p.command.Wait() }()
	redistest.Await(t, "the start", func() bool { return strings.Contains(p.logs(), `"msg":"serving"`) })
	p.end()
	if out.Len() > 0 {
		t.Errorf("the standard output has %s", out.String())
	}
	for line := range strings.Lines(p.logs()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		if http, ok := entry["http"].(string); entry["msg"] == "serving" && (!ok || !strings.HasPrefix(http, "http://127.0.0.1:")) {
			t.Errorf("the start does not say where it listens: %s", line)
		}
	}
}

func TestUselessLimitsAreLogged(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--config", write(t, t.TempDir(), "odd.yaml", "rules: [{name: a, limit: [5/1m, 10/1m]}]\n"))
	p.end()
	if !strings.Contains(p.logs(), "10/1m never decides: 5/1m always refuses first") || !strings.Contains(p.logs(), "odd.yaml:1:") {
		t.Errorf("the logs are\n%s", p.logs())
	}
}
