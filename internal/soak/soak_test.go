//go:build unix

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/faulttest"
	"github.com/weirproject/weir/internal/redistest"
)

func TestReport(t *testing.T) {
	l := &ledger{begun: time.Now()}
	for i := range 3 {
		l.add(outcome{stage: "server", fault: "frozen", report: faulttest.Report{
			Asked: 1000, Degraded: 100, Outage: time.Duration(i+1) * time.Second, Max: time.Duration(i) * time.Second,
			Over: int64(i)}})
	}
	l.add(outcome{stage: "Cluster", fault: "gone", err: errors.New("one\ntwo"),
		report: faulttest.Report{Asked: 100, Late: 2, Twice: 3}})
	var text strings.Builder
	l.print(&text, "-for 1m")
	for _, want := range []string{
		"go run ./internal/soak -for 1m\n",
		"4 faults in 0s; 3100 decisions, 300 of them (9.7%)",
		"2 answers late, 3 units charged twice, 1 faults with a broken promise",
		"| server | frozen | 3 | 2s | 3s | 10.0% | 0s | 2s | 2 | 0 |",
		"**Cluster, gone**: one; two\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &text)
		}
	}
}

// TestStage has one fault happen for as long as it takes, and then one that cannot.
func TestStage(t *testing.T) {
	h, err := newHost()
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	s := single(h)
	s.faults = s.faults[:1]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	random := rand.New(rand.NewPCG(1, 1))
	if err := s.run(ctx, random, 1000, func(o outcome) {
		if o.err != nil || o.report.Degraded == 0 {
			t.Errorf("%+v", o)
		}
		cancel()
	}); err != nil {
		t.Fatal(err)
	}
	s.faults = []fault{{"none", func() trial {
		return trial{Strike: func(*load) { redistest.Await(h, "nothing", func() bool { panic(failure{"no"}) }) }}
	}}}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	if err := s.run(ctx, random, 1000, func(o outcome) {
		if o.err == nil || !strings.Contains(o.err.Error(), "the stage fell: no") {
			t.Errorf("%+v", o)
		}
		cancel()
	}); err != nil {
		t.Fatal(err)
	}
}
