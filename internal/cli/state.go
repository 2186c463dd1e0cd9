package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/observe"
)

// saveEvery is how often the state is saved while a server runs: what a crash forgets.
const saveEvery = time.Minute

// A state is the file in which a store in memory survives a restart.
type state struct {
	path  string
	store *memstore.Store
	lock  *os.File // held as long as the file is this process'
	log   *slog.Logger
	saved atomic.Int64 // when it was saved last, in seconds since 1970
	fails atomic.Int64
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// openState restores a store from a file, if there is one, and keeps others from the file. A
// file that cannot be used is an error and not a fresh start, which would be a fresh quota for
// everybody.
func openState(path string, store *memstore.Store, log *slog.Logger) (s *state, err error) {
	s = &state{path: path, store: store, log: log}
	if s.lock, err = lockFile(path + ".lock"); err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	s.sweep()
	switch err := store.Load(path); {
	case errors.Is(err, fs.ErrNotExist):
		log.Info("there is no state yet: nothing is counted", "state", path)
	case err != nil:
		s.lock.Close()
		return nil, fmt.Errorf("--state: %w; to begin with nothing counted, move that file away", err)
	default:
		log.Info("the state is restored", "state", path)
	}
	// What cannot be saved at the end should be known at the start.
	if err := s.save(); err != nil {
		s.lock.Close()
		return nil, fmt.Errorf("--state: %w", err)
	}
	return s, nil
}

// sweep removes what a process left that was killed while it saved.
func (s *state) sweep() {
	left, _ := filepath.Glob(s.path + ".*.tmp") // the pattern is well-formed, or nothing is swept
	for _, name := range left {
		os.Remove(name)
	}
}

// keep saves now and then until close.
func (s *state) keep(m *observe.Metrics) {
	m.Gauge("weir_state_saved_timestamp_seconds", "When the state was saved to its file.", s.saved.Load)
	m.Count("weir_state_save_errors_total", "Attempts to save the state that failed.", s.fails.Load)
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.ended.Go(func() {
		ticker := time.NewTicker(saveEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := s.save(); err != nil {
				s.log.Error("the state could not be saved; a restart goes back to that of before", "state", s.path, "error", err)
			}
		}
	})
}

// save has the file replaced whole.
func (s *state) save() error {
	err := s.store.Save(s.path)
	if err == nil {
		err = syncDirectory(filepath.Dir(s.path))
	}
	if err != nil {
		s.fails.Add(1)
		return err
	}
	s.saved.Store(time.Now().Unix())
	return nil
}

// close saves for the last time.
func (s *state) close() error {
	if s.stop != nil {
		s.stop()
	}
	s.ended.Wait()
	defer s.lock.Close()
	if err := s.save(); err != nil {
		return fmt.Errorf("--state: %w; a restart goes back to what was saved before", err)
	}
	return nil
}

// syncDirectory has a file's new name survive a loss of power.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
