//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/faulttest"
	"github.com/weirproject/weir/redisstore"
)

const (
	budget  = 50 * time.Millisecond // of a decision: the store's default
	patient = 10 * time.Second      // of the recount
)

// A fault can be injected into a stage at any time.
type fault struct {
	name  string
	trial func() faulttest.Trial // called for each injection, because the master changes
}

// A stage is servers, and the URL of their store.
type stage struct {
	name   string
	url    string
	faults []fault
	settle func() // waits until the servers are healthy again
}

// run injects faults until ctx ends, and records each outcome.
func (s *stage) run(ctx context.Context, random *rand.Rand, rate int, record func(outcome)) error {
	store, err := redisstore.Open(ctx, s.url, redisstore.WithWarn(nil))
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	defer store.Close()
	for round := 0; ctx.Err() == nil; round++ {
		record(s.round(store, s.faults[random.IntN(len(s.faults))], rate, s.name+strconv.Itoa(round)+"-"))
	}
	return nil
}

// An outcome is the result of one fault.
type outcome struct {
	stage, fault string
	report       faulttest.Report
	err          error
}

func (s *stage) round(store weir.Store, f fault, rate int, prefix string) (o outcome) {
	o = outcome{stage: s.name, fault: f.name}
	defer func() {
		if lost, ok := recover().(failure); ok {
			o.err = fmt.Errorf("the stage fell: %s", lost.text)
		}
	}()
	trial := f.trial()
	trial.Rate = rate
	var exact *redisstore.Store
	open := func() weir.Store {
		var err error
		exact, err = redisstore.Open(context.Background(), s.url, redisstore.WithWarn(nil),
			redisstore.WithTimeout(patient))
		if err != nil {
			panic(failure{err.Error()})
		}
		return exact
	}
	o.report, o.err = trial.Run(context.Background(), store, open, prefix, budget)
	if exact != nil {
		exact.Close()
	}
	s.settle()
	return o
}
