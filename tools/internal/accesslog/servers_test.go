package accesslog

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

// A sent request is what a client sent, and what a server should have logged of it.
type sent struct {
	line   string // the request line
	method string // "" is no HTTP request
	target string
	host   string
	agent  string
	user   string
}

const (
	hostile = `say "hi" \x22 \ 'there' café $request | %r {}`
	proxied = "198.51.100.1, 10.0.0.2"
)

var sentRequests = []sent{
	{"GET /a?b=c HTTP/1.1", "GET", "/a?b=c", "shop.example.com", "curl/8.0", ""},
	{`POST /"q"?d="e"\x22\n HTTP/1.1`, "POST", `/"q"?d="e"\x22\n`, "shop.example.com", hostile, "ann"},
	{"DELETE /caf\xc3\xa9/%20/%e4?\xe4 HTTP/1.1", "DELETE", "/caf\xc3\xa9/%20/%e4?\xe4", "[2001:db8::1]:8080", hostile, `a "b`},
	{"GET http://other.example.com/absolute HTTP/1.1", "GET", "/absolute", "other.example.com", "", ""},
	{"\x16\x03\x01\x02\x00\x01", "", "", "", "", ""},
	{"GET /last HTTP/1.1", "GET", "/last", "shop.example.com", "-", ""},
}

// send sends the requests, each on a connection of its own, and waits for their responses.
func send(t *testing.T, address string, requests []sent) {
	t.Helper()
	for _, r := range requests {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(time.Minute))
		text := r.line + "\r\nHost: " + r.host + "\r\nConnection: close\r\nX-Forwarded-For: " + proxied + "\r\n"
		if r.agent != "" {
			text += "User-Agent: " + r.agent + "\r\n"
		}
		if r.user != "" {
			text += "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(r.user+":secret")) + "\r\n"
		}
		fmt.Fprint(conn, text+"\r\n")
		io.Copy(io.Discard, conn)
		conn.Close()
	}
}

// serve runs a server until the test ends, and its output is in the file out.
func serve(t *testing.T, address, debian, name string, args ...string) (out string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil { // not in everybody's PATH
			t.Fatalf("%s is not here; install it: apt-get install %s", name, debian)
		}
	}
	dir := t.TempDir()
	out = filepath.Join(dir, "out")
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	said := new(redistest.Log)
	command := exec.Command(path, args...)
	command.Stdout, command.Stderr, command.Dir, command.SysProcAttr = file, said, dir, redistest.DieWithParent()
	command.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, said)
		}
	})
	redistest.Await(t, name+" listens at "+address, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return out
}

// logged reads a log once all lines are in it.
func logged(t *testing.T, name string, lines int, o Options) ([]Record, File) {
	t.Helper()
	redistest.Await(t, fmt.Sprintf("%s has %d lines", name, lines), func() bool {
		text, err := os.ReadFile(name)
		return err == nil && bytes.Count(text, []byte("\n")) >= lines
	})
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open([]string{"-"}, bytes.NewReader(text), o)
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
	list := all(t, l)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s", name, text)
		}
	})
	return list, l.Files()[0]
}

// wants compares what was logged with what was sent.
func wants(t *testing.T, name string, list []Record, requests []sent, client string, has string) {
	t.Helper()
	var http []sent
	for _, r := range requests {
		if r.method != "" {
			http = append(http, r)
		}
	}
	if len(list) != len(http) {
		t.Errorf("%s: %d requests were read, %d sent: %v", name, len(list), len(http), list)
		return
	}
	// HAProxy logs a request when its connection ends.
	slices.SortFunc(list, func(a, b Record) int { return strings.Compare(a.Target, b.Target) })
	slices.SortFunc(http, func(a, b sent) int { return strings.Compare(a.target, b.target) })
	for i, r := range list {
		want := http[i]
		if r.Method != want.method || r.Target != want.target || r.Client != netip.MustParseAddr(client) || r.Status != 200 {
			t.Errorf("%s: sent %q, read %s", name, want.line, show(r))
		}
		if since := time.Since(time.UnixMicro(r.Time)); since < -2*time.Second || since > time.Hour {
			t.Errorf("%s: %s is %s ago", name, show(r), since)
		}
		if want.agent == "-" {
			want.agent = "" // cannot be told from none
		}
		if strings.Contains(has, "agent") && r.Agent != want.agent {
			t.Errorf("%s: the agent %q was read as %q", name, want.agent, r.Agent)
		}
		if strings.Contains(has, "user") && r.User != want.user {
			t.Errorf("%s: the user %q was read as %q", name, want.user, r.User)
		}
		if strings.Contains(has, "host") && r.Host != want.host {
			t.Errorf("%s: the host %q was read as %q", name, want.host, r.Host)
		}
		if strings.Contains(has, "took") && (r.Took < 0 || r.Took > time.Minute.Microseconds()) {
			t.Errorf("%s: took %d", name, r.Took)
		}
		if strings.Contains(has, "proxied") && want.host != "" && !strings.Contains(fmt.Sprint(r.Fields), proxied) {
			t.Errorf("%s: there is no X-Forwarded-For: %s", name, show(r))
		}
	}
}

// nginxFormats are log_format directives as they stand in nginx.conf.
var nginxFormats = []struct{ name, directive, has string }{
	{"main", `log_format  main  '$remote_addr - $remote_user [$time_local] "$request" '
                      '$status $body_bytes_sent "$http_referer" '
                      '"$http_user_agent" "$http_x_forwarded_for"';`, "agent user proxied"},
	{"timed", `log_format timed '$msec $request_time $remote_addr $request_method "$http_host$request_uri" $status '
    '$http_x_forwarded_for $upstream_response_time $connection "$http_user_agent"';`, "agent took proxied"},
	{"plain", `log_format plain escape=none "$time_iso8601\t$remote_addr\t$request_method\t$request_uri\t$status\t${http_host}";`, "host"},
	{"lines", `log_format lines escape=json '{"time":"$time_iso8601","ip":"$remote_addr","user":"$remote_user",'
    '"method":"$request_method","uri":"$request_uri","status":$status,"took":$request_time,"host":"$host",'
    '"agent":"$http_user_agent","xff":"$http_x_forwarded_for"}';`, "agent user took proxied"},
}

func TestNginxLogs(t *testing.T) {
	dir, four, six := t.TempDir(), redistest.FreeAddr(t), redistest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(six)
	six = "[::1]:" + port
	config := "daemon off;\nmaster_process off;\nerror_log stderr;\npid " + filepath.Join(dir, "pid") + ";\nevents {}\nhttp {\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config += kind + "_temp_path " + filepath.Join(dir, kind) + ";\n"
	}
	logs := "access_log " + filepath.Join(dir, "combined") + " combined;\n"
	for _, f := range nginxFormats {
		config += f.directive + "\n"
		logs += "access_log " + filepath.Join(dir, f.name) + " " + f.name + ";\n"
	}
	config += logs + "server {\nlisten " + four + ";\nlisten " + six + ";\nlocation / { return 200 ok; }\n}\n}\n"
	name := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(name, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, four, "nginx-light", "nginx", "-p", dir, "-c", name)
	requests := append([]sent{{"GET /of-http-0.9", "GET", "/of-http-0.9", "", "", ""}}, sentRequests...)
	for _, address := range []string{four, six} {
		for _, f := range nginxFormats {
			os.Truncate(filepath.Join(dir, f.name), 0)
		}
		os.Truncate(filepath.Join(dir, "combined"), 0)
		client := netip.MustParseAddrPort(address).Addr().String()
		send(t, address, requests)
		list, file := logged(t, filepath.Join(dir, "combined"), len(requests), Options{})
		wants(t, "combined", list, requests, client, "agent user")
		if file.Format != "combined" || file.Resolution != time.Second || file.Unread != 1 {
			t.Errorf("combined: %+v", file)
		}
		for _, f := range nginxFormats {
			list, file := logged(t, filepath.Join(dir, f.name), len(requests), Options{Format: f.directive})
			wants(t, f.name, list, requests, client, f.has)
			if strings.Contains(f.has, "took") != (file.TimeIs == Start) {
				t.Errorf("%s: %+v", f.name, file)
			}
		}
		places := "time=.time,client=.ip,user=.user,method=.method,path=.uri,status=.status,took=.took,agent=.agent," +
			"header.x-forwarded-for=.xff"
		list, _ = logged(t, filepath.Join(dir, "lines"), len(requests), Options{Format: "json", Map: places})
		wants(t, "JSON", list, requests, client, "agent user took proxied")
	}
}

func TestHAProxyLogs(t *testing.T) {
	dir, address := t.TempDir(), redistest.FreeAddr(t)
	name := filepath.Join(dir, "haproxy.cfg")
	config := "global\n  log stdout format raw local0\ndefaults\n  mode http\n  log global\n  option httplog\n  option dontlognull\n" +
		"  timeout client 30s\n  timeout server 30s\n  timeout connect 30s\nfrontend in\n  bind " + address + "\n" +
		"  option accept-invalid-http-request\n  capture request header User-Agent len 100\n" +
		"  http-request return status 200 content-type text/plain string ok\n"
	if err := os.WriteFile(name, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out := serve(t, address, "haproxy", "haproxy", "-db", "-f", name)
	send(t, address, sentRequests)
	list, file := logged(t, out, len(sentRequests), Options{Zone: time.Local})
	wants(t, "haproxy", list, sentRequests, "127.0.0.1", "took")
	if file.Format != "haproxy" || file.Resolution != time.Millisecond || file.TimeIs != Start {
		t.Errorf("files: %+v", file)
	}
}

func TestCaddyLogs(t *testing.T) {
	dir, address := t.TempDir(), redistest.FreeAddr(t)
	name := filepath.Join(dir, "Caddyfile")
	_, port, _ := net.SplitHostPort(address)
	config := "{\n\tadmin off\n\tauto_https off\n}\nhttp://:" + port + " {\n\tbind 127.0.0.1\n" +
		"\tlog {\n\t\toutput stdout\n\t\tformat json\n\t}\n\trespond ok\n}\n"
	if err := os.WriteFile(name, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out := serve(t, address, "caddy", "caddy", "run", "--adapter", "caddyfile", "--config", name)
	requests := append(sentRequests[:3:3], sentRequests[5])
	send(t, address, requests)
	requests[2].target = strings.ToValidUTF8(requests[2].target, "\ufffd") // as Caddy writes it
	list, file := logged(t, out, len(requests), Options{Format: "caddy"})
	wants(t, "caddy", list, requests, "127.0.0.1", "agent host took proxied")
	if file.Format != "caddy" || file.Resolution != time.Microsecond || file.TimeIs != Start {
		t.Errorf("files: %+v", file)
	}
}
