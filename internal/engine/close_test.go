package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// failingClose is a store whose Close fails, as that of the layers does if Redis does not take prefetched units back.
type failingClose struct {
	weir.Store
	err error
}

func (s failingClose) Close() error { return s.err }

// TestCloseInAnOutage checks that a shutdown while Redis is down is a warning, and that other errors are errors.
func TestCloseInAnOutage(t *testing.T) {
	outage := fmt.Errorf("%w (%w): connection refused", weir.ErrUnavailable, weir.ErrNotExecuted)
	for _, failure := range []error{nil, outage, errors.New("disk full")} {
		var log strings.Builder
		e := &Engine{Counts: failingClose{memstore.New(), failure}}
		e.Log = slog.New(slog.NewTextHandler(&log, nil))
		want := failure
		if failure == outage {
			want = nil
		}
		if err := e.Close(); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("Close of a store that fails with %v returns %v, want %v", failure, err, want)
		}
		if warned := strings.Contains(log.String(), "were not given back"); warned != (failure == outage) {
			t.Errorf("Close of a store that fails with %v logs %q", failure, log.String())
		}
	}
}
