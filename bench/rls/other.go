package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

// limits of envoyproxy/ratelimit that are those of text.
const limits = `domain: bench
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 1000000}
`

// onRedis is the store of weir serve with Redis.
func onRedis(url string) (weir.Store, error) {
	const timeout = time.Second // a busy machine is no outage here
	store, err := redisstore.Open(context.Background(), url, redisstore.WithTimeout(timeout))
	if err != nil {
		return nil, err
	}
	stack, err := layers.New(store, layers.Options{Local: memstore.New()})
	if err != nil {
		return nil, err
	}
	return stack.Store, nil
}

// compare prints the CPU of both services for 100,000 calls.
func compare(program, redis string, rounds, calls int) error {
	theirs, end, err := startOther(program, redis)
	if err != nil {
		return err
	}
	defer end()
	ours, err := start("redis", "-redis", redis)
	if err != nil {
		return err
	}
	cpu, ratio, err := turns(rounds, calls, theirs, ours)
	if err == nil {
		const text = "CPU seconds of 100,000 calls on Redis: envoyproxy/ratelimit %.2f, weir %.2f; ratio %.2f (bar: 0.45)\n"
		fmt.Printf(text, cpu[0], cpu[1], ratio)
	}
	return err
}

// startOther starts envoyproxy/ratelimit.
func startOther(program, redis string) (p *peer, end func(), err error) {
	dir, err := os.MkdirTemp("", "ratelimit")
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "ratelimit", "config"), 0o755); err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "ratelimit", "config", "bench.yaml"), []byte(limits), 0o644); err != nil {
		return nil, nil, err
	}
	ports := make([]string, 3)
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return nil, nil, err
		}
	}
	command := exec.Command(program)
	command.Env = append(os.Environ(), "USE_STATSD=false", "LOG_LEVEL=error", "REDIS_SOCKET_TYPE=tcp",
		"REDIS_URL="+strings.TrimPrefix(redis, "redis://"), "RUNTIME_ROOT="+dir, "RUNTIME_SUBDIRECTORY=ratelimit",
		"RUNTIME_WATCH_ROOT=false", "GRPC_PORT="+ports[0], "PORT="+ports[1], "DEBUG_PORT="+ports[2])
	if err := command.Start(); err != nil {
		return nil, nil, err
	}
	end = func() {
		command.Process.Kill()
		command.Wait()
		os.RemoveAll(dir)
	}
	cpu := func() float64 { return processCPU(command.Process.Pid) }
	p, err = connect("127.0.0.1:"+ports[0], cpu)
	for range 100 {
		if _, err = p.round(callers); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return p, end, err
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

// processCPU is the user and system time of a process of Linux in nanoseconds, to 10 ms: proc(5).
func processCPU(pid int) float64 {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) * 1e7
}
