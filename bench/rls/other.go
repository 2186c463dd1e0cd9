package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// domain is the domain of the calls.
const domain = "bench"

// limits are a configuration of envoyproxy/ratelimit with so many descriptors, of which the last one meets the calls.
func limits(descriptors int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", domain)
	for i := range descriptors - 1 {
		fmt.Fprintf(&b, "  - {key: path, value: /orders/%d, rate_limit: {unit: minute, requests_per_unit: %d}}\n", i, i+1)
	}
	b.WriteString("  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 1000000}}\n")
	return b.String()
}

// writeLimits writes a configuration below a folder, and returns the folder of the file.
func writeLimits(dir string, descriptors int) (string, error) {
	config := filepath.Join(dir, "ratelimit", "config")
	if err := os.MkdirAll(config, 0o755); err != nil {
		return "", err
	}
	return config, os.WriteFile(filepath.Join(config, "bench.yaml"), []byte(limits(descriptors)), 0o644)
}

// startRatelimit starts envoyproxy/ratelimit, or weir in its place, with the configuration below a folder.
func startRatelimit(program, redis, dir string, arguments ...string) (*peer, error) {
	ports := make([]string, 3)
	for i := range ports {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		ports[i] = port
	}
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), "USE_STATSD=false", "LOG_LEVEL=error", "REDIS_SOCKET_TYPE=tcp",
		"REDIS_URL="+strings.TrimPrefix(redis, "redis://"), "RUNTIME_ROOT="+dir, "RUNTIME_SUBDIRECTORY=ratelimit",
		"RUNTIME_WATCH_ROOT=false", "GRPC_PORT="+ports[0], "PORT="+ports[1], "DEBUG_PORT="+ports[2])
	if err := command.Start(); err != nil {
		return nil, err
	}
	p, err := connect(true, "127.0.0.1:"+ports[0], command.Process.Pid, func() {
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
