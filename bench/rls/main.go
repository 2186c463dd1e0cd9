// Command rls measures Envoy's rate limit service beside a gRPC server whose handler only answers, in one run on one
// machine: 64 callers, one descriptor each, counted in memory. It prints the CPU of each server for 100,000 calls, and
// the ratio. Each server is a process of its own, and they are asked in turns, so that other work of the machine hits
// both alike.
//
// With -ratelimit FILE, a program built from github.com/envoyproxy/ratelimit/src/service_cmd, it measures both services
// on one Redis instead, which must be empty (-redis URL).
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/server/grpcserver"
	"github.com/weirproject/weir/internal/server/rls"
	"github.com/weirproject/weir/internal/server/web"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

const (
	callers = 64
	text    = `rules: [{name: per-ip, match: {service: bench, descriptor: {remote_address: "*"}}, key: [client.ip], limit: 1000000/1s}]`
)

func main() {
	role := flag.String("role", "", "serve as one of the servers (the program starts itself so)")
	rounds := flag.Int("rounds", 15, "how often each server is asked")
	calls := flag.Int("calls", 20_000, "how many calls a round")
	other := flag.String("ratelimit", "", "a built envoyproxy/ratelimit to compare with on Redis")
	redis := flag.String("redis", "redis://127.0.0.1:6379", "an empty Redis, for -ratelimit")
	flag.Parse()
	err := error(nil)
	switch {
	case *role != "":
		err = serve(*role, *redis)
	case *other != "":
		err = compare(*other, *redis, *rounds, *calls)
	default:
		err = run(*rounds, *calls)
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

// serve says where it listens, then, for each line that it is sent, how much CPU it has used.
func serve(role, redis string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := interface{ Serve(net.Listener) error }(nil)
	if server, err = serverOf(role, redis); err != nil {
		return err
	}
	go server.Serve(listener)
	fmt.Println(listener.Addr())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var used syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
			return err
		}
		fmt.Println(used.Utime.Nano() + used.Stime.Nano())
	}
	return nil
}

func serverOf(role, redis string) (interface{ Serve(net.Listener) error }, error) {
	if role == "null" {
		server := grpc.NewServer()
		ratelimit.RegisterRateLimitServiceServer(server, null{})
		return server, nil
	}
	set, err := rules.Load("rules", []byte(text))
	if err != nil {
		return nil, err
	}
	store := weir.Store(memstore.New())
	if role == "redis" {
		if store, err = onRedis(redis); err != nil {
			return nil, err
		}
	}
	counts := servermetrics.New("bench")
	g, err := gate.New(store, set, gate.WithLocal(memstore.New()), gate.WithObserver(counts.Verdict))
	if err != nil {
		return nil, err
	}
	return grpcserver.New(grpcserver.Config{
		Access: new(web.Access),
		Ready:  func() bool { return true },
		Counts: counts.GRPC(),
		Log:    slog.New(slog.NewTextHandler(io.Discard, nil)),
		Warn:   func(string, ...any) {},
	}, rls.New(g, rls.Options{})), nil
}

// A peer is a server and its callers' connection.
type peer struct {
	client ratelimit.RateLimitServiceClient
	cpu    func() float64 // what the server has used, in nanoseconds
}

func start(role string, flags ...string) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(self, append([]string{"-role", role}, flags...)...)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	said := bufio.NewScanner(out)
	if !said.Scan() {
		return nil, fmt.Errorf("%s does not serve", role)
	}
	cpu := func() float64 {
		fmt.Fprintln(in)
		said.Scan()
		n, _ := strconv.ParseFloat(strings.TrimSpace(said.Text()), 64)
		return n
	}
	return connect(said.Text(), cpu)
}

func connect(address string, cpu func() float64) (*peer, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return &peer{client: ratelimit.NewRateLimitServiceClient(conn), cpu: cpu}, err
}

// round is the seconds of CPU for 100,000 calls.
func (p *peer) round(calls int) (float64, error) {
	before := p.cpu()
	failed := make(chan error, callers)
	var done sync.WaitGroup
	for i := range callers {
		done.Go(func() {
			entry := &common.RateLimitDescriptor_Entry{Key: "remote_address", Value: fmt.Sprint("203.0.113.", i)}
			request := &ratelimit.RateLimitRequest{Domain: "bench",
				Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{entry}}}}
			for range calls / callers {
				r, err := p.client.ShouldRateLimit(context.Background(), request)
				if err == nil && r.GetOverallCode() != ratelimit.RateLimitResponse_OK {
					err = fmt.Errorf("answered %v", r.GetOverallCode())
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
	return (p.cpu() - before) / 1e9 * 100_000 / float64(calls/callers*callers), nil
}

func run(rounds, calls int) error {
	null, err := start("null")
	if err != nil {
		return err
	}
	service, err := start("weir")
	if err != nil {
		return err
	}
	cpu, ratio, err := turns(rounds, calls, null, service)
	if err == nil {
		fmt.Printf("seconds of CPU for 100,000 calls: null server %.2f, rate limit service %.2f; ratio %.2f (bar: 1.25)\n",
			cpu[0], cpu[1], ratio)
	}
	return err
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
