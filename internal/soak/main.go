//go:build unix

// Command soak injects one fault after the other into a server, a Cluster and a master with Sentinels, all
// under load, and accounts for every decision:
//
//	go run ./internal/soak -for 10m > report.md
//
// It starts redis-server and redis-sentinel, logs its progress to standard error, and exits with 1 if anything
// contradicted docs/failures.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weirproject/weir/internal/faulttest"
)

func main() {
	log.SetFlags(log.Ltime)
	length := flag.Duration("for", time.Minute, "how long to inject faults; the last ones end later")
	rate := flag.Int("rate", 1000, "decisions a second on each of the three")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the order of faults")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *length)
	defer cancel()
	l, err := soak(ctx, *rate, *seed)
	if err != nil {
		log.Print(err)
	}
	if l != nil {
		l.print(os.Stdout, fmt.Sprintf("-for %v -rate %d -seed %d", *length, *rate, *seed))
	}
	if err != nil || l.broken() > 0 {
		os.Exit(1)
	}
}

func soak(ctx context.Context, rate int, seed uint64) (*ledger, error) {
	h, err := newHost()
	if err != nil {
		return nil, err
	}
	defer h.close()
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
	stages, err := build(h, random(0))
	if err != nil {
		return nil, err
	}
	l := &ledger{begun: time.Now()}
	record := l.recorder(len(stages))
	errs := make(chan error, len(stages))
	var running sync.WaitGroup
	for i, s := range stages {
		running.Go(func() { errs <- s.run(ctx, random(uint64(i+1)), rate, record) })
	}
	running.Wait()
	close(errs)
	for one := range errs {
		err = errors.Join(err, one)
	}
	return l, err
}

// build starts the servers.
func build(h *host, random *rand.Rand) (stages []*stage, err error) {
	defer func() {
		if lost, ok := recover().(failure); ok {
			err = errors.New(lost.text)
		}
	}()
	return []*stage{single(h), sentinel(h), cluster(h, random)}, nil
}

// recorder returns a function that records and logs outcomes. The first footprint is taken after two rounds for
// each stage: connections and scripts exist by then.
func (l *ledger) recorder(stages int) func(outcome) {
	var mu sync.Mutex
	log.Print(strings.ReplaceAll(faulttest.Columns, "\n", " "))
	return func(o outcome) {
		mu.Lock()
		defer mu.Unlock()
		l.add(o)
		if l.last = measure(); l.rounds == 2*stages {
			l.first = l.last
		}
		log.Print(o.report.Row(o.stage + ": " + o.fault))
		if o.err != nil {
			log.Printf("NOT AS PROMISED: %v\n%s", o.err, o.report.Texts())
		}
	}
}
