package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A server answers CL.THROTTLE, with all processes that it needs.
type server struct {
	name, port string
	pids       []int
}

// start starts redis-cell where its library is given, and weir on memory and on a Redis. Stop is
// to be called in any case.
func start(program, cell, dir string) (servers []*server, stop func(), err error) {
	var running []*exec.Cmd
	stop = func() {
		for _, command := range running {
			command.Process.Signal(syscall.SIGTERM)
			command.Wait()
		}
	}
	launch := func(name string, args ...string) (pid int, err error) {
		command := exec.Command(name, args...)
		if err := command.Start(); err != nil {
			return 0, err
		}
		running = append(running, command)
		return command.Process.Pid, nil
	}
	redis := func(port string, more ...string) (pid int, err error) {
		args := []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir}
		return launch("redis-server", append(args, more...)...)
	}
	weir := func(port string, more ...string) (pid int, err error) {
		args := []string{"serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:" + port, "--log-level", "error"}
		return launch(program, append(args, more...)...)
	}
	ports, err := free(4)
	if err != nil {
		return nil, stop, err
	}
	if cell != "" {
		pid, err := redis(ports[0], "--loadmodule", cell)
		if err != nil {
			return nil, stop, err
		}
		servers = append(servers, &server{"redis-cell", ports[0], []int{pid}})
	}
	alone, err := weir(ports[1])
	if err != nil {
		return nil, stop, err
	}
	behind, err := redis(ports[2])
	if err != nil {
		return nil, stop, err
	}
	if err := reachable(ports[2]); err != nil {
		return nil, stop, err
	}
	shared, err := weir(ports[3], "--store", "redis://127.0.0.1:"+ports[2],
		"--set", "server.store.timeout=2s") // a machine that stalls is no error of the row
	if err != nil {
		return nil, stop, err
	}
	servers = append(servers, &server{"weir, memory", ports[1], []int{alone}}, &server{"weir, Redis", ports[3], []int{shared, behind}})
	for _, s := range servers {
		err = errors.Join(err, reachable(s.port))
	}
	return servers, stop, err
}

// free are ports that nobody listens at.
func free(n int) (ports []string, err error) {
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // all of them together, or one may come twice
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		ports = append(ports, port)
	}
	return ports, nil
}

// reachable waits until a server accepts connections.
func reachable(port string) (err error) {
	for range 500 {
		var conn net.Conn
		if conn, err = net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			return conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// benchmark is one run of redis-benchmark: its rate, and the processor time of the server's processes.
func (s *server) benchmark(load shape, requests int) (rate, cpu float64, err error) {
	before, err := s.used()
	if err != nil {
		return 0, 0, err
	}
	run := exec.Command("redis-benchmark", "-h", "127.0.0.1", "-p", s.port, "-c", strconv.Itoa(load.clients), "-P", strconv.Itoa(load.depth),
		"-n", strconv.Itoa(requests), "-r", "100000", "--csv", "CL.THROTTLE", "bench:__rand_int__", "100000000", "1", "1")
	var told strings.Builder
	run.Stderr = &told
	out, err := run.Output()
	if err != nil {
		return 0, 0, fmt.Errorf("redis-benchmark (install Redis' tools): %w: %s", err, told.String())
	}
	// A line of names, and a line of which the second field is the rate.
	lines, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(lines) != 2 || len(lines[1]) < 2 {
		return 0, 0, errors.Join(fmt.Errorf("redis-benchmark printed %q, and %s", out, told.String()), err)
	}
	if rate, err = strconv.ParseFloat(lines[1][1], 64); err != nil {
		return 0, 0, err
	}
	after, err := s.used()
	return rate, (after - before) / float64(requests), err
}

// used is the processor time of all processes of the server in µs, as Linux counts it.
func (s *server) used() (sum float64, err error) {
	const tick = 10_000 // µs: USER_HZ is 100 on every Linux that Go runs on
	for _, pid := range s.pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		_, after, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(after)
		if len(fields) < 13 {
			return 0, fmt.Errorf("/proc/%d/stat is %q", pid, text)
		}
		for _, field := range fields[11:13] { // utime, stime
			ticks, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return 0, err
			}
			sum += ticks * tick
		}
	}
	return sum, nil
}
