package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// limits of envoyproxy/ratelimit that are those of text.
const limits = `domain: bench
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 1000000}
`

// startOther starts envoyproxy/ratelimit with a folder for its configuration.
func startOther(program, redis, dir string) (*peer, error) {
	if err := os.MkdirAll(filepath.Join(dir, "ratelimit", "config"), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "ratelimit", "config", "bench.yaml"), []byte(limits), 0o644); err != nil {
		return nil, err
	}
	ports := make([]string, 3)
	for i := range ports {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		ports[i] = port
	}
	command := exec.Command(program)
	command.Env = append(os.Environ(), "USE_STATSD=false", "LOG_LEVEL=error", "REDIS_SOCKET_TYPE=tcp",
		"REDIS_URL="+strings.TrimPrefix(redis, "redis://"), "RUNTIME_ROOT="+dir, "RUNTIME_SUBDIRECTORY=ratelimit",
		"RUNTIME_WATCH_ROOT=false", "GRPC_PORT="+ports[0], "PORT="+ports[1], "DEBUG_PORT="+ports[2])
	if err := command.Start(); err != nil {
		return nil, err
	}
	p, err := connect("127.0.0.1:"+ports[0], command.Process.Pid, func() {
		command.Process.Kill()
		command.Wait()
	})
	for range 100 {
		if _, err = p.round(callers); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return p, err
}

func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}
