package engine

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

	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/memstore"
)

// saveEvery is the interval between saves while a server runs: a crash loses the counts since the last save.
const saveEvery = time.Minute

// A state is the file that preserves a store in memory across restarts.
type state struct {
	path  string
	field string // name of the setting, in messages
	store *memstore.Store
	lock  *os.File // held until close
	log   *slog.Logger
	saved atomic.Int64 // last save, in seconds since 1970
	fails atomic.Int64
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// openState restores a store from a file, if the file exists, and locks the file. A file that
// cannot be read is an error: an empty store instead would give every client a fresh quota.
func openState(path, field string, store *memstore.Store, log *slog.Logger) (s *state, err error) {
	s = &state{path: path, field: field, store: store, log: log}
	if s.lock, err = lockFile(path + ".lock"); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	s.sweep()
	switch err := store.Load(path); {
	case errors.Is(err, fs.ErrNotExist):
		log.Info("no state file yet: counts start at zero", "state", path)
	case err != nil:
		s.lock.Close()
		return nil, fmt.Errorf("%s: %w; to start with empty counts, move that file away", field, err)
	default:
		log.Info("state restored", "state", path)
	}
	// A file that cannot be written should fail the start, not the end.
	if err := s.save(); err != nil {
		s.lock.Close()
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return s, nil
}

// sweep removes temporary files of a process that was killed during a save.
func (s *state) sweep() {
	left, _ := filepath.Glob(s.path + ".*.tmp") // a malformed pattern matches nothing
	for _, name := range left {
		os.Remove(name)
	}
}

// keep saves every minute until close.
func (s *state) keep(m *servermetrics.Metrics) {
	m.Gauge("weir_state_saved_timestamp_seconds", "Unix time of the last save of the state file.", s.saved.Load)
	m.Count("weir_state_save_errors_total", "Failed saves of the state file.", s.fails.Load)
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
				s.log.Error("state could not be saved; a restart would restore the previous save", "state", s.path,
					"error", err)
			}
		}
	})
}

// save replaces the file as a whole.
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

// close saves a last time.
func (s *state) close() error {
	if s.stop != nil {
		s.stop()
	}
	s.ended.Wait()
	defer s.lock.Close()
	if err := s.save(); err != nil {
		return fmt.Errorf("%s: %w; a restart will restore the previous save", s.field, err)
	}
	return nil
}

// syncDirectory makes a renamed file survive a loss of power.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
