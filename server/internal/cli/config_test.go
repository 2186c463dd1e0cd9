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
	write(t, dir, "proxies.yaml", "trusted_proxies: [10.0.0.0/8]\n"+oneRule)
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
		{"--resp 0.0.0.0:0", "", 2, "a password (--resp-password-file or WEIR_RESP_PASSWORD)"},
		{"--resp 0.0.0.0:0", "WEIR_TOKEN=0123456789abcdef", 2, "the resp listener"},
		{"--http-proxy-protocol --config $DIR/proxies.yaml", "", 2, "would be open without authentication"},
		// secrets
		{"--token-file $DIR/short", "", 2, "has 5 bytes; allowed: 16 or more"},
		{"", "WEIR_TOKEN=short", 2, "WEIR_TOKEN has 5 bytes"},
		{"--token-file $DIR/none", "", 1, "--token-file: open "},
		{"--token-file $DIR/short", "WEIR_TOKEN=0123456789abcdef", 2, "both --token-file and WEIR_TOKEN are given; leave one out"},
		// flags and variables
		{"--htpp :80", "", 2, "unknown flag --htpp; did you mean --http?"},
		{"-x", "", 2, "unknown flag -x; see weir serve --help"},
		{"--store", "", 2, "flag --store needs a value: store of the counts"},
		{"--store-timeout 5", "", 2, `--store-timeout is "5"; allowed: a time with its unit, such as 10s or 500ms`},
		{"--store-timeout 0s", "", 2, "--store-timeout is 0s; allowed: more than 0"},
		{"--max-keys many", "", 2, `--max-keys is "many"; allowed: a whole number`},
		{"--max-keys 0", "", 2, "--max-keys is 0; allowed: 1 or more"},
		{"--max-bytes 1GiB", "", 2, `--max-bytes is "1GiB"; allowed: a whole number`},
		{"--max-bytes 0", "", 2, "--max-bytes is 0; allowed: 1 or more"},
		{"", "WEIR_STORE_TIMEOUT=5", 2, `WEIR_STORE_TIMEOUT is "5"; allowed: a time with its unit`},
		{"", "WEIR_OPEN=perhaps", 2, `WEIR_OPEN is "perhaps"; allowed: true or false`},
		{"--rules rules.yaml", "", 2, "a rule file is given with --config"},
		{"--audit redis", "", 2, "--audit redis stands for the Redis of --store, but --store is memory"},
		{"--audit a,b", "", 2, "--audit has two of the kind file; allowed: one of each"},
		{"--audit a.log,b.log", "", 2, "--audit has two of the kind file"},
		{"--audit log,", "", 2, "--audit has an empty value; allowed, with commas: redis,"},
		{"--audit $DIR", "", 2, "is a directory"},
		{"--audit redis://127.0.0.1:1/x", "", 2, "--audit: redis://127.0.0.1:1/x: "},
		{"--audit log --audit-keys some", "", 2, `--audit-keys is "some"; allowed: shown, hashed, hidden`},
		{"--audit log --audit-keys hashed", "", 2, "addresses could be found by trying all of them; give --hash-key-file"},
		{"--audit log --audit-keep 0", "", 2, "--audit-keep is 0; allowed: 1 to 100000000"},
		{"--audit log --audit-file-size 0", "", 2, "--audit-file-size is 0; allowed: 1 to 100000"},
		{"--alerts loud", "", 2, `--alerts: a setting is "loud"; allowed: on, off, or with commas NAME=VALUE of reject_share, degraded`},
		{"--alerts reject_share=200%", "", 2, `--alerts: reject_share is "200%"; allowed: a percentage above 0% up to 100%, or off`},
		{"--alert-language fr", "", 2, `--alert-language is "fr"; allowed: en, zh`},
		{"--alert-format xml", "", 2, `--alert-format is "xml"; allowed: json, slack, feishu, dingtalk`},
		{"", "WEIR_ALERT_WEBHOOK=ftp://secret.example", 2, "--alert-webhook-file: it is no URL of a webhook; allowed: http:// or https:// with a host"},
		{"", "WEIR_ALERT_SECRET=0123456789abcdef", 2, "there is a secret for alerts and no webhook"},
		{"--alerts off", "WEIR_ALERT_WEBHOOK=http://127.0.0.1:1/hook", 2, "there is a webhook for alerts, but --alerts is off"},
		{"--log-level loud", "", 2, `--log-level is "loud"; allowed: debug, info, warn, error`},
		{"--log-format xml", "", 2, `--log-format is "xml"; allowed: text, json`},
		{"--path-form loose", "", 2, `--path-form has "loose"; allowed: drop-trailing-slash`},
		{"--trusted-proxies here", "", 2, `--trusted-proxies has "here"; allowed: an address such as`},
		{"--trusted-proxies 0.0.0.0/0", "", 2, "0.0.0.0/0"},
		{"--client-header X-Client-IP", "", 2, "--client-header: header is"},
		{"rules.yaml", "", 2, `weir serve takes no argument, but was given "rules.yaml"`},
		{"--shutdown-timeout -1s", "", 2, "must not be below 0"},
		// files
		{"--config $DIR/none.yaml", "", 1, "no such file: "},
		{"--config $DIR/empty", "", 1, "empty has no files of rules"},
		{"--config http://203.0.113.1/weir.yaml", "", 2, "allowed: https, or http on this machine"},
		{"--config-token-file token", "", 2, "--config-token-file needs a URL in --config"},
		{"--rules redis", "", 2, "--rules redis stands for the Redis of --store, but --store is memory"},
		{"--rules postgres://127.0.0.1", "", 2, "--rules:"},
		{"--ledger redis", "", 2, "--ledger redis stands for the Redis of --store"},
		{"--rules-wait 0s", "", 2, "--rules-wait is 0s"},
		{"--rules redis://127.0.0.1:1 --rules-refresh 1ms", "", 2, "--rules-refresh is 1ms; allowed: 100ms to 24h"},
		{"--config https://127.0.0.1:1/x --config-poll 500ms", "", 2, "--config-poll is 500ms; allowed: 1s to 24h"},
		{"--config $DIR/wrong.yaml", "", 1, `wrong.yaml:1:10: unknown field "nam"; did you mean "name"?`},
		{"--config $DIR/rules.yaml --limit 5/10s", "", 2, "both --config and --limit are given; write the limit into"},
		{"--limit 5/10", "", 2, `weir: --limit: limit is "5/10"; allowed: a period with its unit`},
		{"--limit 5/10s --limit nothing", "", 2, `weir: --limit: limit is "nothing"; allowed: `},
		{"--limit", "", 2, "flag --limit needs a value"},
		// front ends
		{"--gateway 127.0.0.1:0", "", 2, "--gateway has no upstream: give --upstream http://host:port, or --upstream demo"},
		{"--upstream 127.0.0.1:3000 --gateway 127.0.0.1:0", "", 2, `--upstream is "127.0.0.1:3000"; allowed: demo, or a URL such as http://127.0.0.1:3000`},
		{"--upstream ftp://127.0.0.1 --gateway 127.0.0.1:0", "", 2, "the scheme http, https or h2c"},
		{"--http off", "", 2, "no listener is on: leave out --http off, or give --resp, --grpc or --upstream"},
		{"--http 127.0.0.1", "", 2, "--http: address is"},
		{"--http fd:http", "", 2, `--http: address is "fd:http"; allowed: fd: and the name of a socket`},
		{"--http 127.0.0.1:http", "", 2, "a port from 0"},
		{"--http 203.0.113.1:0", "", 1, "--http: listen tcp 203.0.113.1:0"},
		{"--http unix:http.sock", "", 2, "an absolute path, as in unix:///run/weir.sock"},
		{"--http-tls-cert cert.pem", "", 2, "--http-tls-cert and --http-tls-key go together"},
		{"--http-tls-cert a.pem,b.pem --http-tls-key a.key", "", 2, "--http-tls-cert has 2 files and --http-tls-key 1"},
		{"--resp 127.0.0.1:0 --resp-client-ca ca.pem", "", 2, "--resp-client-ca needs TLS"},
		{"--http-tls-cert none.pem --http-tls-key none.pem", "", 1, "none.pem"},
		{"--gateway-max-connections 0", "", 2, "--gateway-max-connections is 0; allowed: 1 or more"},
		{"--http off --metrics 127.0.0.1:0", "", 2, "no listener is on"},
		{"--http-proxy-protocol", "", 2, "the networks of your balancers"},
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
	file := write(t, dir, "rules.yaml", "store: redis://user:secret@127.0.0.1:1/1\n"+oneRule)
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
	p.command.Env, p.command.Stdout, p.command.Stderr = call{}.environ(), &out, p
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
