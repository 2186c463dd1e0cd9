// Package top shows in a terminal which rules of a running server refuse requests, and of whom: the page
// Overview of the console as text.
package top

import (
	"context"
	"time"

	"github.com/gdamore/tcell/v3"

	"github.com/weirproject/weir/internal/telemetry"
)

// A Source reads the reports of a server. It is used by one goroutine at a time.
type Source interface {
	Overview(ctx context.Context, last time.Duration) (*telemetry.Overview, error)
	Rule(ctx context.Context, name string, last time.Duration) (*telemetry.RuleReport, error)
}

// Options are what the command line sets.
type Options struct {
	Server string        // named in the title
	Every  time.Duration // between two reads
	Last   time.Duration // covered by the reports; the key t chooses another
	First  *telemetry.Overview
}

// A question selects the reports that are on the screen.
type question struct {
	last time.Duration
	rule string // "": the overview alone
}

type answer struct {
	question
	overview *telemetry.Overview
	rule     *telemetry.RuleReport
	err      error
}

// Run shows the reports until the user quits or ctx is done. The screen is initialised; the caller ends it.
func Run(ctx context.Context, screen tcell.Screen, source Source, o Options) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v := newView(screen, o)
	answers := make(chan answer, 1) // the last read does not wait for a loop that has ended
	reading := false
	read := func() {
		if !reading {
			reading = true
			go func(q question) { answers <- q.ask(ctx, source) }(v.question)
		}
	}
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for {
		v.draw()
		asked := v.question
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !v.paused {
				read()
			}
		case a := <-answers:
			reading = false
			v.take(&a)
			if a.question != v.question {
				read()
			}
		case event := <-screen.EventQ():
			if v.handle(event); v.quit {
				return
			}
			if v.question != asked {
				read()
			}
		}
	}
}

func (q question) ask(ctx context.Context, source Source) answer {
	a := answer{question: q}
	a.overview, a.err = source.Overview(ctx, q.last)
	if a.err == nil && q.rule != "" {
		a.rule, a.err = source.Rule(ctx, q.rule, q.last)
	}
	return a
}
