package urlsource

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/ruleset"
)

// An etcdServer is a real one, in a folder of its own.
type etcdServer struct {
	t       *testing.T
	address string
	token   string
	command *exec.Cmd
}

func startEtcd(t *testing.T) *etcdServer {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		t.Fatal("etcd is not installed: apt-get install etcd-server")
	}
	e := &etcdServer{t: t, address: freeAddress(t)}
	client, peer := "http://"+e.address, "http://"+freeAddress(t)
	e.command = exec.Command(path, "--data-dir", t.TempDir(), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer,
		"--log-level", "error", "--unsafe-no-fsync")
	do(t, e.command.Start())
	t.Cleanup(func() {
		_ = e.command.Process.Kill()
		_ = e.command.Wait()
	})
	until(t, "etcd answers", func() bool {
		response, err := http.Get(client + "/health")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return e
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	do(t, err)
	defer l.Close()
	return l.Addr().String()
}

func until(t *testing.T, what string, test func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !test(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func (e *etcdServer) call(path string, message map[string]any) map[string]any {
	e.t.Helper()
	body, err := json.Marshal(message)
	do(e.t, err)
	request, err := http.NewRequest(http.MethodPost, "http://"+e.address+path, bytes.NewReader(body))
	do(e.t, err)
	if e.token != "" {
		request.Header.Set("Authorization", e.token)
	}
	response, err := http.DefaultClient.Do(request)
	do(e.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	do(e.t, err)
	if response.StatusCode != http.StatusOK {
		e.t.Fatalf("%s: %s", path, text)
	}
	var answer map[string]any
	do(e.t, json.Unmarshal(text, &answer))
	return answer
}

func (e *etcdServer) put(text string) {
	e.t.Helper()
	e.call("/v3/kv/put", map[string]any{"key": []byte("weir/rules"), "value": []byte(text)})
}

// follow sends the limit of each update, or its error.
func (e *etcdServer) follow(opts ...Option) <-chan string {
	e.t.Helper()
	s, err := New("etcd+http://"+e.address+"/weir/rules", opts...)
	do(e.t, err)
	updates := make(chan string, 100)
	follower := ruleset.Follow(s, func(n ruleset.Update, done func(error)) {
		if done != nil {
			done(n.Err)
		}
		if n.Err != nil {
			updates <- "bad"
			return
		}
		updates <- n.File.Rules[0].Limit[0]
	})
	ctx, cancel := context.WithCancel(e.t.Context())
	ended := make(chan bool)
	go func() { follower.Run(ctx); close(ended) }()
	e.t.Cleanup(func() { cancel(); <-ended })
	return updates
}

func next(t *testing.T, updates <-chan string, want string) {
	t.Helper()
	for end := time.After(time.Minute); ; {
		select {
		case got := <-updates:
			if got == want {
				return
			}
		case <-end:
			t.Fatalf("%s has not come within a minute", want)
		}
	}
}

func TestEtcdAnnouncesChanges(t *testing.T) {
	e := startEtcd(t)
	e.put(set("1/1s"))
	updates := e.follow(WithInterval(24 * time.Hour)) // without the watch, no change would be found
	next(t, updates, "1/1s")
	for i := 2; i < 5; i++ {
		e.put(set(fmt.Sprintf("%d/1s", i)))
		next(t, updates, fmt.Sprintf("%d/1s", i))
	}
	revision := e.call("/v3/kv/range", map[string]any{"key": []byte("weir/rules")})["header"].(map[string]any)["revision"]
	e.call("/v3/kv/compaction", map[string]any{"revision": revision})
	e.put(set("9/1s"))
	next(t, updates, "9/1s")
	e.call("/v3/kv/deleterange", map[string]any{"key": []byte("weir/rules")})
	next(t, updates, "bad")
	e.put(set("10/1s"))
	next(t, updates, "10/1s")
}

func TestEtcdWithUsers(t *testing.T) {
	e := startEtcd(t)
	e.put(set("1/1s"))
	for _, name := range []string{"root", "weir"} {
		e.call("/v3/auth/user/add", map[string]any{"name": name, "password": "secret"})
	}
	e.call("/v3/auth/role/add", map[string]any{"name": "root"})
	e.call("/v3/auth/role/add", map[string]any{"name": "rules"})
	e.call("/v3/auth/role/grant", map[string]any{"name": "rules", "perm": map[string]any{"permType": "READ", "key": []byte("weir/rules")}})
	e.call("/v3/auth/user/grant", map[string]any{"user": "root", "role": "root"})
	e.call("/v3/auth/user/grant", map[string]any{"user": "weir", "role": "rules"})
	e.call("/v3/auth/enable", map[string]any{})
	e.token = e.call("/v3/auth/authenticate", map[string]any{"name": "root", "password": "secret"})["token"].(string)

	next(t, e.follow(), "bad")
	file := filepath.Join(t.TempDir(), "token")
	do(t, os.WriteFile(file, []byte("weir:secret"), 0o600))
	updates := e.follow(WithTokenFile(file), WithInterval(24*time.Hour))
	next(t, updates, "1/1s")
	e.put(set("2/1s"))
	next(t, updates, "2/1s")
}
