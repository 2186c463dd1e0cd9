package ruleimport_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

// A runningNginx is Debian's nginx with a configuration, reached by one HTTP/2 connection over a Unix socket: so
// $connection_time is the clock of its limits for all requests, and $connection_requests their order.
type runningNginx struct {
	dir    string
	http   *http.Client
	stop   context.CancelFunc
	ended  chan error
	output *bytes.Buffer
}

// A sentRequest is a request of a test.
type sentRequest struct {
	method, host, path, query string
	client                    string
	header, cookie            map[string]string
}

// A loggedRequest is what nginx has logged about a request.
type loggedRequest struct {
	id     int
	nth    int   // the order in which limits were decided
	millis int64 // when, by the clock of the limits
	status int
	req    string // $limit_req_status
	conn   string // $limit_conn_status
}

// logging is what a configuration needs within http and within each server for the test. The rest is under test.
const logging = `
    log_format proof '$http_x_id $nth $at $status ${limit_req_status}- ${limit_conn_status}- $connection';
    access_log access.log proof;
    keepalive_requests 1000000;
    http2_max_concurrent_streams 4096;
    set_real_ip_from unix:;
    real_ip_header X-Real-IP;
    client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
`

const stamped = `set $nth $connection_requests; set $at $connection_time; `

// nginxFile is a whole configuration file.
func nginxFile(dir, http string) string {
	http = strings.ReplaceAll(http, "LISTEN", "listen unix:"+filepath.Join(dir, "s")+" http2")
	http = strings.ReplaceAll(http, "UPSTREAM", "unix:"+filepath.Join(dir, "u"))
	http = strings.ReplaceAll(http, "server {", "server { "+stamped)
	return "daemon off;\nmaster_process off;\nerror_log stderr crit;\npid pid;\nworker_rlimit_nofile 4096;\n" +
		"events { worker_connections 1024; }\nhttp {" + logging + http + "}\n"
}

// startNginx runs nginx in a directory with the file nginx.conf.
func startNginx(t *testing.T, dir string) *runningNginx {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			t.Fatal("nginx is not here; install it: apt-get install nginx-light")
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	n := &runningNginx{dir: dir, stop: stop, ended: make(chan error, 1), output: new(bytes.Buffer)}
	command := exec.CommandContext(ctx, path, "-p", dir, "-e", "stderr", "-c", filepath.Join(dir, "nginx.conf"))
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // it ends after writing its log
	command.Stdout, command.Stderr, command.SysProcAttr = n.output, n.output, redistest.DieWithParent()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { n.ended <- command.Wait() }()
	socket := filepath.Join(dir, "s")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
			break
		}
		select {
		case err := <-n.ended:
			t.Fatalf("nginx ended: %v\n%s", err, n.output)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("nginx does not listen: %v", err)
		}
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		Protocols: new(http.Protocols),
		HTTP2:     &http.HTTP2Config{StrictMaxConcurrentRequests: true},
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	n.http = &http.Client{Transport: transport, Timeout: 5 * time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return n
}

// send sends a request, and returns its status when the response has ended.
func (n *runningNginx) send(id int, r *sentRequest) (int, error) {
	request, err := http.NewRequest(r.method, "http://nginx"+r.path+"?"+r.query, nil)
	if err != nil {
		return 0, err
	}
	request.Host = r.host // of one URL, so that there is one connection
	request.Header.Set("X-Id", strconv.Itoa(id))
	request.Header.Set("X-Real-IP", r.client)
	for name, value := range r.header {
		request.Header.Set(name, value)
	}
	for name, value := range r.cookie {
		request.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	response, err := n.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// end stops nginx and reads its log. The requests are in the order in which they were decided.
func (n *runningNginx) end(t *testing.T, want int) []loggedRequest {
	t.Helper()
	n.http.CloseIdleConnections()
	n.stop()
	select {
	case <-n.ended:
	case <-time.After(time.Minute):
		t.Fatal("nginx does not end")
	}
	file, err := os.Open(filepath.Join(n.dir, "access.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	list := make([]loggedRequest, want)
	seen, connection := 0, ""
	for lines := bufio.NewScanner(file); lines.Scan(); seen++ {
		fields := strings.Fields(lines.Text())
		if len(fields) != 7 || connection != "" && fields[6] != connection {
			t.Fatalf("the line is %q, want 7 fields of one connection, %s", lines.Text(), connection)
		}
		connection = fields[6]
		var l loggedRequest
		var seconds, millis int64
		if _, err := fmt.Sscanf(strings.Join(fields[:4], " "), "%d %d %d.%03d %d", &l.id, &l.nth, &seconds, &millis,
			&l.status); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		l.millis = seconds*1000 + millis
		l.req, l.conn = strings.TrimSuffix(fields[4], "-"), strings.TrimSuffix(fields[5], "-")
		if l.nth < 1 || l.nth > want || list[l.nth-1].nth != 0 {
			t.Fatalf("%q: request %d of %d", lines.Text(), l.nth, want)
		}
		list[l.nth-1] = l
	}
	if seen != want {
		t.Fatalf("nginx has logged %d requests of %d", seen, want)
	}
	for i := 1; i < want; i++ {
		if list[i].millis < list[i-1].millis {
			t.Fatalf("request %d was decided at %d ms, before the one before it", i, list[i].millis)
		}
	}
	return list
}

// sendAll sends requests in bursts with pauses between them.
func (n *runningNginx) sendAll(requests []sentRequest, bursts []int, pauses []time.Duration) error {
	failed := make(chan error, len(requests))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 400)
	next := 0
	for i, burst := range bursts {
		for ; burst > 0 && next < len(requests); burst-- {
			id := next
			next++
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				if _, err := n.send(id, &requests[id]); err != nil {
					failed <- fmt.Errorf("request %d: %w", id, err)
				}
			})
			if id == 0 {
				wg.Wait() // the connection is made
			}
		}
		time.Sleep(pauses[i])
	}
	wg.Wait()
	close(failed)
	return <-failed
}
