package ceiling_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func TestBatches(t *testing.T) {
	next, c, _ := driven(t, every)
	batcher := c
	limit := weir.MustLimit("limit", weir.SlidingLog{Limit: 10, Window: time.Hour})
	request := func(key string, cost, times int64) weir.Request {
		return weir.Request{Claims: []weir.Claim{{Key: key, Limit: limit, Cost: cost}}, Times: times,
			Decisions: make([]weir.Decision, max(times, 1)), Granted: 77, Err: errors.New("before")}
	}
	batch := []weir.Request{request("a", 1, 10), request("b", 1, 11), request("c", 1, 0)}
	batcher.DecideBatch(background, batch)
	if batch[0].Granted != 10 || batch[1].Granted != 11 || batch[2].Granted != 0 || batch[1].Err != nil ||
		c.Refused() != 0 {
		t.Fatalf("%+v", batch)
	}
	batch = []weir.Request{request("a", 1, 5), request("b", 1, 1), request("d", -1, 1), request("e", 1, 1),
		request("b", 1, 0)}
	batcher.DecideBatch(background, batch)
	cut := weir.Decision{RetryAfter: 5 * time.Minute, ResetAfter: 5 * time.Minute}
	if r := batch[0]; r.Granted != 2 || r.Err != nil ||
		!slices.Equal(r.Decisions, []weir.Decision{{}, {}, cut, cut, cut}) {
		t.Errorf("cut: %+v", r)
	}
	var input *weir.InputError
	if !errors.As(batch[2].Err, &input) {
		t.Errorf("wrong: %+v", batch[2])
	}
	if batch[1].Granted != 1 || batch[3].Granted != 1 || batch[4].Granted != 0 ||
		batch[4].Decisions[0].RetryAfter != 0 {
		t.Errorf("%+v", batch)
	}
	asked := next.asked.Load()
	batch = []weir.Request{request("a", 1, 2), request("b", 1, 0)}
	batch[1].Decisions = nil
	batcher.DecideBatch(background, batch)
	full := weir.Decision{RetryAfter: 5 * time.Minute, ResetAfter: time.Hour, At: epoch}
	if r := batch[0]; r.Granted != 0 || r.Err != nil || !slices.Equal(r.Decisions, []weir.Decision{full, full}) ||
		batch[1].Err != nil {
		t.Errorf("refused: %+v", batch)
	}
	if next.asked.Load() != asked || c.Refused() != 3+2 {
		t.Errorf("asked %d more, %d refused", next.asked.Load()-asked, c.Refused())
	}
	batch = []weir.Request{request("a", 1, 2), request("f", 1, 2)}
	batch[0].Decisions = make([]weir.Decision, 1)
	batcher.DecideBatch(background, batch)
	if !errors.As(batch[0].Err, &input) || batch[1].Granted != 2 {
		t.Errorf("too few decisions, of a key without room: %+v", batch)
	}
}

// The decisions of times that were not passed on repeat the store's last one.
func TestBatchBeyondTheCeiling(t *testing.T) {
	shared := memstore.New()
	batcher := newCeiling(t, shared, memstore.New(), every)
	limit := weir.MustLimit("limit", weir.SlidingLog{Limit: 10, Window: time.Hour})
	ask := func(granted int64) []weir.Decision {
		t.Helper()
		batch := []weir.Request{{Claims: claim(limit, 1), Times: 15, Decisions: make([]weir.Decision, 15)}}
		if batcher.DecideBatch(background, batch); batch[0].Granted != granted || batch[0].Err != nil {
			t.Fatalf("%+v, want %d granted", batch[0], granted)
		}
		return batch[0].Decisions
	}
	d := ask(10) // the store refuses, of 12 that fit
	if d[9].RetryAfter == 0 || d[14] != d[9] || d[14].ResetAfter != time.Hour {
		t.Errorf("refused by the store: %+v", d)
	}
	shared.Reset(background, claim(limit, 1))
	d = ask(2)
	if d[1].Remaining != 8 || d[1].RetryAfter != 0 || d[2].Remaining != 0 || d[2].RetryAfter <= 0 ||
		d[2].At != d[1].At || d[2].ResetAfter != time.Hour || d[14] != d[2] {
		t.Errorf("refused by the ceiling: %+v", d)
	}
}
