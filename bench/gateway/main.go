// Command gateway measures the HTTP front ends of weir serve, as it is built and with its defaults, beside servers
// without them, in one run on one machine, and prints Markdown: the CPU a request of the gateway beside that of
// ReverseProxy, of POST /v1/decide beside that of a handler that only answers, and of a response of 1 MiB whose tokens
// are counted beside the gateway that does not count, at 64 connections; and the delay of the events of streams.
//
// Each server is a process of its own, and the upstream another; they are asked in turns, in short slices, and the
// ratios are within a round: what else the machine does hits both alike. A server's CPU is what the system counted for
// its process.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/weirproject/weir/bench/process"
)

const connections = 64

// A pair is two servers that are asked the same, and what is held against what.
type pair struct {
	what       string
	base, mine string // roles
	request    string
	bar        string
	met        func(cpu, rate float64) bool
}

// pairs are what is measured. A new front end adds its role and its pair.
func pairs() []pair {
	const request = "GET /orders/42?page=3 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: bench\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nAuthorization: Bearer 0123456789\r\n\r\n"
	post := func(path, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	}
	quick := func(cpu, _ float64) bool { return cpu <= 1.35 }
	light := func(cpu, _ float64) bool { return cpu <= 1.15 }
	return []pair{
		{"gateway, against the bare ReverseProxy", "bare", "gateway", request, "CPU ≤ 1.15×", light},
		{"gateway, against one with a pool of buffers too", "pooled", "gateway", request, "CPU ≤ 1.15×", light},
		{"50 routes and 4 rules, against one with a pool of buffers too", "pooled", "routes", request, "CPU ≤ 1.25×",
			func(cpu, _ float64) bool { return cpu <= 1.25 }},
		{"decide by a rule, against a null handler", "null", "decide", post("/v1/decide", byRule), "CPU ≤ 1.35×", quick},
		{"tokens of a response of 1 MiB, against the gateway without them", "gateway", "tokens",
			post("/v1/chat/completions", prompt), "CPU ≤ 1.3×", func(cpu, _ float64) bool { return cpu <= 1.3 }},
		{"decide by a claim, against a null handler", "null", "decide", post("/v1/decide", byClaim), "CPU ≤ 1.35×", quick},
	}
}

const (
	byRule  = `{"request":{"method":"GET","path":"/orders/42","client":"203.0.113.7","headers":{"X-User":"42"}}}`
	byClaim = `{"claims":[{"name":"api","limit":"1000000/1s","key":"user:42"}]}`
)

func main() {
	role := flag.String("role", "", "serve as one of the servers (the program starts itself so)")
	upstream := flag.String("upstream", "", "the upstream of that server")
	rounds := flag.Int("rounds", 31, "how often each server is asked")
	slice := flag.Duration("slice", 200*time.Millisecond, "for how long")
	program := flag.String("program", "", "the weir to measure; without it, it is built")
	only := flag.String("only", "", "measure the pairs of this role alone")
	flag.Parse()
	err := error(nil)
	if *role != "" {
		err = serve(*role, *upstream)
	} else {
		err = run(*program, *only, *rounds, *slice)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run(program, only string, rounds int, slice time.Duration) error {
	dir, err := os.MkdirTemp("", "weir-gateway")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if program, err = process.Build(program, dir); err != nil {
		return err
	}
	fmt.Printf("%d rounds of %v, %d connections; medians; the servers take turns\n\n", rounds, slice, connections)
	fmt.Println("| what | requests/s | CPU us a request | requests/s, ratio | CPU, ratio | bar | |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | --- | --- |")
	for _, p := range pairs() {
		if only == streamRole || only != "" && only != p.mine {
			continue
		}
		if err := p.measure(program, rounds, slice); err != nil {
			return err
		}
	}
	if only != "" && only != streamRole {
		return nil
	}
	return measureStreams(program, rounds)
}

// figures are what came of one server, a round each.
type figures struct{ rate, cpu []float64 }

// start starts weir serve for the roles that it has, and this program for the others.
func start(program, role, upstream string) (*process.Server, error) {
	if w, ok := programOf(role, upstream); ok {
		return process.Weir(program, w.listener, w.rules, w.flags...)
	}
	return process.Self("-role", role, "-upstream", upstream)
}

func (p *pair) measure(program string, rounds int, slice time.Duration) error {
	upstream := "upstream"
	if p.mine == "tokens" {
		upstream = "models"
	}
	up, err := start(program, upstream, "")
	if err != nil {
		return err
	}
	defer up.Stop()
	all := map[string]*figures{p.base: {}, p.mine: {}}
	crowds := map[string]*crowd{}
	for _, role := range []string{p.base, p.mine} {
		s, err := start(program, role, "http://"+up.Address)
		if err != nil {
			return err
		}
		defer s.Stop()
		if crowds[role], err = gather(role, s, p.request); err != nil {
			return err
		}
		defer crowds[role].leave()
		if err := crowds[role].ask(slice, nil); err != nil { // to warm up
			return err
		}
	}
	for round := range rounds {
		order := []string{p.base, p.mine}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, role := range order {
			if err := crowds[role].ask(slice, all[role]); err != nil {
				return err
			}
		}
	}
	p.print(all[p.base], all[p.mine])
	return nil
}

func (p *pair) print(base, mine *figures) {
	rate, cpu := paired(mine.rate, base.rate), paired(mine.cpu, base.cpu)
	verdict := "**not met**"
	if p.met(cpu, rate) {
		verdict = "met"
	}
	fmt.Printf("| %s: %s | %.0f | %.1f | 1.00× | 1.00× | | |\n", p.what, p.base, median(base.rate), median(base.cpu))
	fmt.Printf("| %s: **%s** | %.0f | %.1f | %.2f× | %.2f× | %s | %s |\n", p.what, p.mine, median(mine.rate), median(mine.cpu), rate, cpu, p.bar, verdict)
}

// paired is the median of the ratios within each round.
func paired(a, b []float64) float64 {
	var ratios []float64
	for i := range a {
		ratios = append(ratios, a[i]/b[i])
	}
	return median(ratios)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
