package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/accesslog"
	"github.com/weirproject/weir/internal/backtest"
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/server/admin"
)

// Bounds of a backtest on a server, beside those of its upload.
const (
	rehearsedText  = 1 << 30   // bytes of the log, uncompressed
	rehearsedLines = 2_000_000 // that could be read
	rehearsedKeys  = 1 << 16   // in each store
	rehearsedTop   = 20        // clients in the report
	rehearsedSweep = 12        // limits
	rehearsedHeap  = 384 << 20 // bytes by which the heap may grow
)

// rehearse runs a backtest for the admin API.
func rehearse(ctx context.Context, s *engine.Setup, r *admin.Rehearsal) (*backtest.Report, error) {
	c := &backtest.Config{Name: "rules in force", File: r.File, Set: r.Set, Clients: s.Clients, Form: s.Form,
		AnyMethod: s.AnyMethod, Geo: s.Located, MaxKeys: rehearsedKeys, Top: rehearsedTop,
		FalsePositives: 0.001}
	if r.Against != nil {
		c.Name, c.AgainstName, c.Against = "candidate rules", "rules in force", r.Against
	}
	var err error
	if r.Good != "" {
		c.Good = new(backtest.Legitimate)
		if c.Good.Condition, err = backtest.ParseCondition("good", r.Good, s.Form); err != nil {
			return nil, err
		}
	}
	if r.Sweep != "" {
		sweep, err := backtest.ParseSweep("sweep", r.Sweep, r.File)
		if err != nil {
			return nil, err
		}
		if n := len(sweep.Limits); n > rehearsedSweep {
			return nil, fmt.Errorf("sweep has %d limits; allowed: %d on a server", n, rehearsedSweep)
		}
		c.Sweeps = append(c.Sweeps, sweep)
	}
	if r.Propose != "" {
		if err := c.SetPropose("propose", []string{r.Propose}); err != nil {
			return nil, err
		}
	}
	before := heap()
	c.Open = func(int, int) (backtest.Source, error) {
		if _, err := r.Log.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		log, err := accesslog.Open([]string{"-"}, r.Log, accesslog.Options{Format: r.Format, MaxText: rehearsedText})
		if err != nil {
			return nil, errors.New(r.Name + strings.TrimPrefix(err.Error(), "-"))
		}
		return &considerate{Source: log, name: r.Name, before: before, room: rehearsedHeap, since: time.Now()}, nil
	}
	return backtest.Run(ctx, c)
}

// A considerate source works half of the time at most, so that a server with one core still decides requests without a
// wait, and ends at the maximum of lines.
type considerate struct {
	backtest.Source
	name   string
	lines  int
	before uint64    // the heap at the begin
	room   uint64    // by which it may grow
	since  time.Time // of this spell of work
}

const workSpell = 2 * time.Millisecond

// Files has the name that the client gave, instead of that of the standard input.
func (s *considerate) Files() []accesslog.File {
	files := slices.Clone(s.Source.Files())
	for i := range files {
		files[i].Name = s.name
	}
	return files
}

func (s *considerate) Next(r *accesslog.Record) error {
	if s.lines++; s.lines > rehearsedLines {
		return fmt.Errorf("log has over %d lines, which is the maximum on a server; send a part of it, "+
			"or run weir backtest", rehearsedLines)
	}
	if s.lines%8192 == 0 && heap() > s.before+s.room {
		if runtime.GC(); heap() > s.before+s.room*3/4 { // or the collector would run again and again
			return fmt.Errorf("log has too many clients for the memory of a server, which is %d MB for a backtest; "+
				"send a part of it, or run weir backtest", rehearsedHeap>>20)
		}
	}
	if s.lines%64 == 0 && time.Since(s.since) > workSpell {
		time.Sleep(workSpell)
		s.since = time.Now()
	}
	return s.Source.Next(r)
}

// heap is the size of all objects, including those that the collector has not found dead yet.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
