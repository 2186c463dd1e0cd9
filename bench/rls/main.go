// Command rls measures Envoy's rate limit service beside a gRPC server whose handler only answers, in one run on one
// machine: 64 callers, one descriptor each, counted in memory. It prints the CPU of each server for 100,000 calls, and
// the ratio. Each server is a process of its own, and they are asked in turns, so that other work of the machine hits
// both alike.
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

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/server/grpcserver"
	"github.com/weirproject/weir/internal/server/rls"
	"github.com/weirproject/weir/internal/server/web"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/observe"
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
	flag.Parse()
	err := error(nil)
	if *role != "" {
		err = serve(*role)
	} else {
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
func serve(role string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := interface{ Serve(net.Listener) error }(nil)
	if server, err = serverOf(role); err != nil {
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

func serverOf(role string) (interface{ Serve(net.Listener) error }, error) {
	if role == "null" {
		server := grpc.NewServer()
		ratelimit.RegisterRateLimitServiceServer(server, null{})
		return server, nil
	}
	set, err := rules.Load("rules", []byte(text))
	if err != nil {
		return nil, err
	}
	metrics := observe.New("bench")
	g, err := gate.New(memstore.New(), set, gate.WithLocal(memstore.New()), gate.WithObserver(metrics.Verdict))
	if err != nil {
		return nil, err
	}
	return grpcserver.New(grpcserver.Config{
		Access: new(web.Access),
		Ready:  func() bool { return true },
		Counts: metrics.GRPC(),
		Log:    slog.New(slog.NewTextHandler(io.Discard, nil)),
		Warn:   func(string, ...any) {},
	}, rls.New(g, rls.Options{})), nil
}

// A peer is a server and its callers' connection.
type peer struct {
	client ratelimit.RateLimitServiceClient
	ask    io.Writer
	said   *bufio.Scanner
}

func start(role string) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(self, "-role", role)
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
	p := &peer{ask: in, said: bufio.NewScanner(out)}
	if !p.said.Scan() {
		return nil, fmt.Errorf("%s does not serve", role)
	}
	conn, err := grpc.NewClient(p.said.Text(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	p.client = ratelimit.NewRateLimitServiceClient(conn)
	return p, err
}

// cpu is what the server has used, in nanoseconds.
func (p *peer) cpu() float64 {
	fmt.Fprintln(p.ask)
	p.said.Scan()
	n, _ := strconv.ParseFloat(strings.TrimSpace(p.said.Text()), 64)
	return n
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
	var peers []*peer
	for _, role := range []string{"null", "weir"} {
		p, err := start(role)
		if err != nil {
			return err
		}
		if _, err := p.round(calls); err != nil { // warm
			return err
		}
		peers = append(peers, p)
	}
	var cpu [2][]float64
	var ratios []float64
	for range rounds {
		for i, p := range peers {
			seconds, err := p.round(calls)
			if err != nil {
				return err
			}
			cpu[i] = append(cpu[i], seconds)
		}
		ratios = append(ratios, cpu[1][len(cpu[1])-1]/cpu[0][len(cpu[0])-1])
	}
	fmt.Printf("seconds of CPU for 100,000 calls: null server %.2f, rate limit service %.2f; ratio %.2f (bar: 1.25)\n",
		median(cpu[0]), median(cpu[1]), median(ratios))
	return nil
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}
