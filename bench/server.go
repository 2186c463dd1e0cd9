package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is the Redis under measurement, and a connection of its own to look at it.
type server struct {
	url     string
	control *redis.Client
	command *exec.Cmd // nil: somebody else's
	dir     string
}

// startServer starts a redis-server on a free loopback port, without persistence.
func startServer() (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return nil, err
	}
	command := exec.Command("redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", dir)
	command.SysProcAttr = dieWithParent()
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting redis-server (install it, or give -redis URL): %w", errors.Join(err, os.RemoveAll(dir)))
	}
	s, err := connect(fmt.Sprintf("redis://127.0.0.1:%d", port))
	if err == nil {
		s.command, s.dir = command, dir
		return s, nil
	}
	command.Process.Kill()
	command.Wait()
	return nil, errors.Join(err, os.RemoveAll(dir))
}

// connect waits until the Redis at url answers, and refuses one that is not empty: a run
// flushes it.
func connect(url string) (*server, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	s := &server{url: url, control: redis.NewClient(options)}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for err = s.control.Ping(ctx).Err(); err != nil && ctx.Err() == nil; err = s.control.Ping(ctx).Err() {
		time.Sleep(10 * time.Millisecond)
	}
	keys, err := s.control.DBSize(ctx).Result()
	switch {
	case err != nil:
		err = fmt.Errorf("%s does not answer: %w", options.Addr, err)
	case keys > 0:
		err = fmt.Errorf("%s holds %d keys; give an empty Redis, a run flushes it", options.Addr, keys)
	default:
		return s, nil
	}
	return nil, errors.Join(err, s.control.Close())
}

// stopOnSignal ends the server when the run is interrupted.
func (s *server) stopOnSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		s.stop()
		os.Exit(130)
	}()
}

func (s *server) stop() error {
	s.control.Close()
	if s.command == nil {
		return nil
	}
	s.command.Process.Signal(os.Interrupt)
	s.command.Wait()
	return os.RemoveAll(s.dir)
}

// options are go-redis' for this server.
func (s *server) options() (*redis.Options, error) { return redis.ParseURL(s.url) }

func (s *server) flush() error {
	return s.control.FlushAll(context.Background()).Err()
}

// usage is the processor time that the server used so far, and how many scripts it ran.
func (s *server) usage() (usage, error) {
	fields, err := s.info("everything")
	if err != nil {
		return usage{}, err
	}
	var total float64
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(fields[field], 64)
		if err != nil {
			return usage{}, fmt.Errorf("INFO cpu: %s: %w", field, err)
		}
		total += seconds
	}
	u := usage{cpu: time.Duration(total * float64(time.Second))}
	if text, ok := strings.CutPrefix(fields["cmdstat_evalsha"], "calls="); ok { // absent before the first
		count, _, _ := strings.Cut(text, ",")
		u.calls, err = strconv.ParseInt(count, 10, 64)
	}
	return u, err
}

// memory is used_memory, less the buffers of clients: they grow and shrink on their own.
func (s *server) memory() (int64, error) {
	fields, err := s.info("memory")
	if err != nil {
		return 0, err
	}
	used, err := strconv.ParseInt(fields["used_memory"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("INFO memory: used_memory: %w", err)
	}
	clients, _ := strconv.ParseInt(fields["mem_clients_normal"], 10, 64)
	return used - clients, nil
}

func (s *server) version() string {
	fields, err := s.info("server")
	if err != nil {
		return err.Error()
	}
	return fields["redis_version"]
}

func (s *server) info(section string) (map[string]string, error) {
	text, err := s.control.Info(context.Background(), section).Result()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}
