package redisconn

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/respguard"
)

func TestOpenKinds(t *testing.T) {
	const password = "p@ss/w?r#d%:"
	acl := redistest.StartACL(t, "ann", password)
	socket, secure := redistest.StartUnix(t), redistest.StartTLS(t)
	credentials := "ann:" + url.QueryEscape(password) + "@"
	files := "?ca=" + secure.CA + "&cert=" + secure.Cert + "&key=" + secure.Key
	for _, c := range []struct {
		name, url string
		config    Config
	}{
		{"unix", socket.URL() + "?db=2", Config{}},
		{"ACL and database", "redis://" + credentials + acl.Addr() + "/3", Config{}},
		{"TLS by parameters", secure.URL() + files + "&server_name=localhost", Config{}},
		{"TLS by any name", secure.URL() + files + "&server_name=other&any_name=true", Config{}},
		{"TLS by option", secure.URL(), Config{TLS: secure.Config()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := open(t, c.url, c.config)
			if got := mustRun(t, conn, c.name); got != 1 {
				t.Errorf("the first charge counts %d", got)
			}
		})
	}
	if got := socket.Info("keyspace"); got["db2"] == "" || len(got) != 1 {
		t.Errorf("db=2 wrote to %v", got)
	}
}

func TestOpenErrors(t *testing.T) {
	plain, secure := redistest.Start(t), redistest.StartTLS(t)
	acl := redistest.StartACL(t, "ann", "PASS")
	node := redistest.Start(t, "--cluster-enabled", "yes")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, url, want string
		config          Config
	}{
		{"wrong password", "redis://ann:SECRET@" + acl.Addr(), "WRONGPASS", Config{}},
		{"no password", acl.URL(), "the server wants a password: redis://:password@host, ", Config{}},
		{"nobody there", "redis://127.0.0.1:1", "connection refused", Config{}},
		{"no socket", "unix:///none.sock", "no such file", Config{}},
		{"no such database", plain.URL() + "/99", "DB index is out of range", Config{}},
		{"TLS without certificate", secure.URL(), "certificate", Config{}},
		{"TLS by a wrong name", secure.URL() + "?ca=" + secure.CA + "&server_name=other", "other", Config{}},
		{"TLS by any name without its authority", secure.URL() + "?any_name=true", "authority", Config{}},
		{"any_name that is no", secure.URL() + "?any_name=false", "true, or without it", Config{}},
		{"WithTLS without TLS", plain.URL(), "rediss://", Config{TLS: secure.Config()}},
		{"ca that is not there", secure.URL() + "?ca=/none.pem", "none.pem", Config{}},
		{"ca without certificate", secure.URL() + "?ca=" + empty, "at least one PEM certificate", Config{}},
		{"cert without certificate", secure.URL() + "?cert=" + empty + "&key=" + empty, "cert and key", Config{}},
		{"Cluster node as one server", node.URL(), "redis+cluster://", Config{}},
		{"one server as Cluster", "redis+cluster://" + plain.Addr(), "no node of a Cluster", Config{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			conn, err := openConn(ctx, c.url, c.config, respguard.Decisions)
			if err == nil {
				conn.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestOpenGivesUp on a server that accepts connections and sends nothing.
func TestOpenGivesUp(t *testing.T) {
	server := redistest.Start(t)
	server.Stop()
	for _, scheme := range []string{"redis://", "redis+cluster://"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := openConn(ctx, scheme+server.Addr(), Config{}, respguard.Decisions)
		if !errors.Is(err, weir.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}

func TestOpenWarns(t *testing.T) {
	master := redistest.Start(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no limit of memory", []string{"--maxmemory-policy", "allkeys-lru"}, ""},
		{"noeviction", []string{"--maxmemory", "100mb"}, ""},
		{"volatile-ttl", []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"}, ""},
		{"allkeys-lru", []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, "maxmemory-policy allkeys-lru"},
		{"volatile-lfu", []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-lfu"}, "maxmemory-policy volatile-lfu"},
		{"replica", []string{"--replicaof", host, port}, "is a replica"},
		{"INFO forbidden", []string{"--user", "default", "on", "nopass", "~*", "+@all", "-info"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var told []string
			open(t, redistest.Start(t, c.args...).URL(), Config{Warn: func(text string) { told = append(told, text) }})
			if all := strings.Join(told, "\n"); !strings.Contains(all, c.want) || (c.want == "") != (all == "") {
				t.Errorf("told %q, want %q", all, c.want)
			}
		})
	}
}

// TestUnsupportedVersions: versions of Redis that this machine does not have.
func TestUnsupportedVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"6.2.0": false, "6.2.14": false, "7.0.15": false, "8.4.0": false, "9.1.0": false, "10.0": false,
		"6.0.16": true, "5.0.7": true, "2.8.24": true, "": true, "unknown": true,
	} {
		problem := unfit(map[string]string{"version": version, "mode": "standalone"}, single)
		if (problem != "") != want || want && !strings.Contains(problem, "6.2 or later") {
			t.Errorf("version %q: %q", version, problem)
		}
	}
}
