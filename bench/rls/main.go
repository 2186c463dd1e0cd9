// Command rls measures Envoy's rate limit service beside a gRPC server whose handler only answers, in one run on one
// machine: 64 callers, one descriptor each, counted in memory by weir serve as it is built, with its defaults and a
// configuration of envoyproxy/ratelimit of 1,000 descriptors. It prints the CPU of each server for 100,000 calls, and the
// ratio. Each server is a process of its own, and they are asked in turns, so that other work of the machine hits both
// alike.
//
// With -ratelimit FILE, a program built from github.com/envoyproxy/ratelimit/src/service_cmd, it measures that service
// and weir ratelimit, with the same variables on one Redis instead, which must be empty (-redis URL).
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirproject/weir/bench/process"
)

const callers = 64

func main() {
	floor := flag.Bool("null", false, "serve as the null server (the program starts itself so)")
	program := flag.String("program", "", "the weir to measure; without it, it is built")
	rounds := flag.Int("rounds", 15, "how often each server is asked")
	calls := flag.Int("calls", 20_000, "how many calls a round")
	other := flag.String("ratelimit", "", "a built envoyproxy/ratelimit to compare with on Redis")
	descriptors := flag.Int("descriptors", 1000, "how many descriptors are configured")
	redis := flag.String("redis", "redis://127.0.0.1:6379", "an empty Redis, for -ratelimit")
	flag.Parse()
	err := error(nil)
	switch {
	case *floor:
		err = serve()
	default:
		err = run(*program, *other, *redis, *descriptors, *rounds, *calls)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rls:", err)
		os.Exit(1)
	}
}

// null answers without a decision.
type null struct {
	ratelimit.UnimplementedRateLimitServiceServer
}

func (null) ShouldRateLimit(context.Context, *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	return &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK}, nil
}

// serve serves null.
func serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	ratelimit.RegisterRateLimitServiceServer(server, null{})
	go server.Serve(listener)
	process.Serve(listener.Addr().String())
	return nil
}

// isCounted reports whether an answer has the limit of the descriptor.
func isCounted(r *ratelimit.RateLimitResponse) bool {
	return len(r.GetStatuses()) == 1 && r.GetStatuses()[0].GetCurrentLimit() != nil
}

// A peer is a server and its callers' connection.
type peer struct {
	counts bool // its answers have limits
	client ratelimit.RateLimitServiceClient
	pid    int
	stop   func()
}

func started(counts bool, server *process.Server, err error) (*peer, error) {
	if err != nil {
		return nil, err
	}
	return connect(counts, server.Address, server.PID(), server.Stop)
}

func connect(counts bool, address string, pid int, stop func()) (*peer, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return &peer{counts, ratelimit.NewRateLimitServiceClient(conn), pid, stop}, err
}

// round is the seconds of CPU for 100,000 calls.
func (p *peer) round(calls int) (float64, error) {
	before, err := process.CPU(p.pid)
	if err != nil {
		return 0, err
	}
	failed := make(chan error, callers)
	var done sync.WaitGroup
	for i := range callers {
		done.Go(func() {
			entry := &common.RateLimitDescriptor_Entry{Key: "remote_address", Value: fmt.Sprint("203.0.113.", i)}
			request := &ratelimit.RateLimitRequest{Domain: domain,
				Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{entry}}}}
			for range calls / callers {
				r, err := p.client.ShouldRateLimit(context.Background(), request)
				if err == nil && (r.GetOverallCode() != ratelimit.RateLimitResponse_OK || p.counts != isCounted(r)) {
					err = fmt.Errorf("answered %v", r)
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	done.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
	}
	after, err := process.CPU(p.pid)
	return (after - before).Seconds() * 100_000 / float64(calls/callers*callers), err
}

func run(program, other, redis string, descriptors, rounds, calls int) error {
	dir, err := os.MkdirTemp("", "weir-rls")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if program, err = process.Build(program, dir); err != nil {
		return err
	}
	config, err := writeLimits(dir, descriptors)
	if err != nil {
		return err
	}
	name, bar := "a server that only answers", 1.25
	start := func() (theirs, ours *peer, err error) { return startBoth(program, config) }
	if other != "" {
		name, bar = "envoyproxy/ratelimit", 0.45
		start = func() (theirs, ours *peer, err error) { return startServices(program, other, redis, dir) }
	}
	theirs, ours, err := start()
	if err != nil {
		return err
	}
	defer theirs.stop()
	defer ours.stop()
	cpu, ratio, err := turns(rounds, calls, theirs, ours)
	if err == nil {
		fmt.Printf("seconds of CPU for 100,000 calls: %s %.2f, weir %.2f; ratio %.2f (bar: %.2f)\n",
			name, cpu[0], cpu[1], ratio, bar)
	}
	return err
}

// startBoth starts the null server, and weir serve with a configuration, which counts in memory.
func startBoth(program, config string) (null, ours *peer, err error) {
	server, err := process.Self("-null")
	if null, err = started(false, server, err); err != nil {
		return nil, nil, err
	}
	text := fmt.Sprintf("server: {envoy: {config: %q}}\nrules: []\n", config)
	server, err = process.Weir(program, "grpc", text, "--http", "off", "--grpc", "127.0.0.1:0")
	ours, err = started(true, server, err)
	return null, ours, err
}

// startServices starts envoyproxy/ratelimit, and weir in its place.
func startServices(program, other, redis, dir string) (theirs, ours *peer, err error) {
	if theirs, err = startRatelimit(other, redis, dir); err != nil {
		return nil, nil, err
	}
	ours, err = startRatelimit(program, redis, dir, "ratelimit")
	return theirs, ours, err
}

// turns asks two servers in turns. It returns the medians of their CPU for 100,000 calls, and of its ratio.
func turns(rounds, calls int, peers ...*peer) (medians [2]float64, ratio float64, err error) {
	var cpu [2][]float64
	var ratios []float64
	for n := range rounds + 1 {
		var used [2]float64
		for i, p := range peers {
			if used[i], err = p.round(calls); err != nil {
				return medians, 0, err
			}
		}
		if n == 0 {
			continue // warm
		}
		for i := range used {
			cpu[i] = append(cpu[i], used[i])
		}
		ratios = append(ratios, used[1]/used[0])
	}
	return [2]float64{median(cpu[0]), median(cpu[1])}, median(ratios), nil
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}
