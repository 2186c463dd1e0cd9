// Command throttle measures CL.THROTTLE of weir serve, on its own memory and on a Redis, beside
// redis-cell, and prints Markdown: decisions a second and processor time a decision, over one
// connection and over fifty, with 1, 16 and 64 commands under way on each. The worst row comes
// first.
//
// The load is redis-benchmark's: random keys of 100,000, all granted. The servers take turns: what
// else the machine does hits all alike. Without -cell, the ratios are to weir's memory.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

func main() {
	program := flag.String("program", "", "the weir to measure; without it, it is built")
	cell := flag.String("cell", "", "libredis_cell.so, redis-cell built by cargo; without it, redis-cell is left out")
	rounds := flag.Int("rounds", 3, "how often each row is measured")
	requests := flag.Int("requests", 200_000, "commands of a round with 50 connections; those with one have fewer")
	flag.Parse()
	if err := run(os.Stdout, *program, *cell, *rounds, *requests); err != nil {
		fmt.Fprintln(os.Stderr, "throttle:", err)
		os.Exit(1)
	}
}

// A shape is how the load comes.
type shape struct{ clients, depth int }

var shapes = []shape{{1, 1}, {1, 16}, {1, 64}, {50, 1}, {50, 16}, {50, 64}}

// requests keeps rows of a slow shape as short as those of a fast one.
func (s shape) requests(most int) int {
	switch {
	case s.clients == 1 && s.depth == 1:
		return most / 8
	case s.clients == 1 || s.depth == 1:
		return most / 2
	}
	return most
}

// A row is what one server did with one shape.
type row struct {
	name         string
	shape        shape
	rate, cpu    []float64 // a second; µs of processor time a decision
	ratio, spent float64   // rate and cpu by those of the reference in the same round, medians
}

func run(out io.Writer, program, cell string, rounds, requests int) error {
	dir, err := os.MkdirTemp("", "weir-throttle")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if program == "" {
		program = filepath.Join(dir, "weir")
		build := exec.Command("go", "build", "-o", program, "github.com/weirproject/weir/server/cmd/weir")
		build.Dir, build.Stderr = "..", os.Stderr
		build.Env = append(os.Environ(), "GOWORK=") // the workspace has the server
		if err := build.Run(); err != nil {
			return fmt.Errorf("building weir: %w", err)
		}
	}
	servers, stop, err := start(program, cell, dir)
	defer stop()
	if err != nil {
		return err
	}
	var rows []*row
	for _, s := range shapes {
		some, err := measure(servers, s, rounds, s.requests(requests))
		if err != nil {
			return err
		}
		rows = append(rows, some...)
	}
	print(out, servers[0].name, rows)
	return nil
}

// measure has the servers take turns. The first is the reference.
func measure(servers []*server, s shape, rounds, requests int) ([]*row, error) {
	rows := make([]*row, len(servers))
	for i := range rows {
		rows[i] = &row{name: servers[i].name, shape: s}
	}
	for range rounds {
		for i, server := range servers {
			rate, cpu, err := server.benchmark(s, requests)
			if err != nil {
				return nil, fmt.Errorf("%s, %d × %d: %w", server.name, s.clients, s.depth, err)
			}
			rows[i].rate, rows[i].cpu = append(rows[i].rate, rate), append(rows[i].cpu, cpu)
		}
	}
	for _, r := range rows {
		r.ratio, r.spent = ratio(r.rate, rows[0].rate), ratio(r.cpu, rows[0].cpu)
	}
	return rows, nil
}

// ratio is the median of the ratios of each round.
func ratio(of, to []float64) float64 {
	list := make([]float64, len(of))
	for i := range of {
		list[i] = of[i] / to[i]
	}
	return median(list)
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// print leaves the rows of the reference where its figures are needed: in each row beside them.
func print(out io.Writer, reference string, rows []*row) {
	fmt.Fprintf(out, "| server | connections | deep | decisions/s | × %s | CPU µs | × %s |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n", reference, reference)
	slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(a.ratio, b.ratio) })
	for _, r := range rows {
		fmt.Fprintf(out, "| %s | %d | %d | %.0f | %.2f | %.1f | %.2f |\n",
			r.name, r.shape.clients, r.shape.depth, median(r.rate), r.ratio, median(r.cpu), r.spent)
	}
}
