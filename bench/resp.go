package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weirproject/weir/bench/process"
)

const (
	respName  = "**weir** CL.THROTTLE, RESP server, embedded store"
	barelyRun = "redis-server: EVALSHA of the shortest bucket"
)

// respFlags are redis-benchmark's: 64 connections, 16 commands deep, 10k keys.
var respFlags = []string{"-h", "127.0.0.1", "-c", "64", "-P", "16", "-r", "10000", "--csv"}

// overRESP has redis-benchmark ask weir's RESP server and Redis by turns. All three share the machine.
func overRESP(out io.Writer, s *server, rounds, requests int) (bar, error) {
	addr, stop, err := serveRESP()
	if err != nil {
		return bar{}, err
	}
	defer stop()
	sha, err := s.control.ScriptLoad(context.Background(), shortest).Result()
	if err != nil {
		return bar{}, err
	}
	options, err := s.options()
	if err != nil {
		return bar{}, err
	}
	var weir, script []float64
	for range rounds {
		a, err := redisBenchmark(addr, requests, "CL.THROTTLE", "key:__rand_int__", "15", "30", "60")
		if err != nil {
			return bar{}, err
		}
		b, err := redisBenchmark(options.Addr, requests, "EVALSHA", sha, "1", "key:__rand_int__", "2000000", "32000000")
		if err != nil {
			return bar{}, err
		}
		weir, script = append(weir, a), append(script, b)
	}
	fmt.Fprintf(out, "## RESP\n\nredis-benchmark %s: requests/s, medians of %d rounds of %d. The client shares the machine.\n\n", strings.Join(respFlags[2:8], " "), rounds, requests)
	t := table{head: []string{"row", "requests/s"}}
	t.add(respName, fmt.Sprintf("%.0f", median(weir)))
	t.add(barelyRun, fmt.Sprintf("%.0f", median(script)))
	t.print(out)
	return bar{what: "RESP: CL.THROTTLE, 64 connections, 16 deep, against Redis answering the shortest script", ratio: paired(weir, script), bound: 0.6, atLeast: true,
		measured: fmt.Sprintf("%.0f/s against %.0f/s", median(weir), median(script))}, nil
}

// serveRESP starts weir serve, and checks that it limits.
func serveRESP() (addr string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return "", nil, err
	}
	defer os.RemoveAll(dir)
	program, err := process.Build("", dir)
	if err != nil {
		return "", nil, err
	}
	server, err := process.Weir(program, "resp", "rules: []", "--set", "server.allow_empty=true", "--http", "off", "--resp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	if err := limits(server.Address); err != nil {
		server.Stop()
		return "", nil, err
	}
	return server.Address, server.Stop, nil
}

// limits checks that the server grants what it should and refuses the rest.
func limits(addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	for i := range 6 {
		reply, err := client.Do(context.Background(), "CL.THROTTLE", "check", 4, 1, 3600).Int64Slice()
		if err != nil {
			return err
		}
		if granted := reply[0] == 0; granted != (i < 5) {
			return fmt.Errorf("%s: question %d is answered %v", respName, i+1, reply)
		}
	}
	return nil
}

// redisBenchmark is the requests a second of one run.
func redisBenchmark(addr string, requests int, command ...string) (float64, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	args := append([]string{"-p", port, "-n", strconv.Itoa(requests)}, respFlags...)
	var told strings.Builder
	run := exec.Command("redis-benchmark", append(args, command...)...)
	run.Stderr = &told
	out, err := run.Output()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark (install Redis' tools): %w: %s", err, told.String())
	}
	// A line of names, and a line of which the second field is the rate.
	lines, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(lines) != 2 || len(lines[1]) < 2 {
		return 0, errors.Join(fmt.Errorf("redis-benchmark printed %q", out), err)
	}
	return strconv.ParseFloat(lines[1][1], 64)
}
