package memstore

import (
	"context"

	"github.com/weirproject/weir"
)

// DecideBatch implements weir.Batcher. Requests are decided one after the other, each at its own instant.
func (s *Store) DecideBatch(ctx context.Context, requests []weir.Request) {
	refused := false // the request that Follows refers to
	for i := range requests {
		r := &requests[i]
		switch {
		case r.Follows && refused:
			if r.Granted, r.Err = 0, r.Check(); r.Err == nil {
				r.Err = weir.ErrNotAsked
			}
		case r.Decisions == nil || r.Times <= 1:
			r.Granted, r.Err = s.Decide(ctx, r.Claims, r.Times, r.Decisions)
		default:
			r.Granted, r.Err = s.decideEach(r)
		}
		if !r.Follows {
			refused = r.Err == nil && r.Granted == 0
		}
	}
}

// decideEach decides a request of several times, with a Decision for each.
func (s *Store) decideEach(r *weir.Request) (granted int64, err error) {
	if s.closed.Load() {
		return 0, weir.ErrClosed
	}
	if err := r.Check(); err != nil {
		return 0, err
	}
	var t transaction
	t.start(s, r.Claims)
	told := len(r.Claims)
	granted, ok := t.refuse(r.Times, r.Decisions[:told])
	if !ok {
		if granted, told, err = t.takeEach(r.Times, r.Decisions); err != nil {
			return 0, err
		}
	}
	for i := told; i < len(r.Decisions); i++ {
		r.Decisions[i] = r.Decisions[i-len(r.Claims)]
	}
	return granted, nil
}

// takeEach charges one by one, and returns the number of decisions it filled in.
func (t *transaction) takeEach(times int64, decisions []weir.Decision) (granted int64, told int, err error) {
	defer t.unlock()
	if err := t.lock(); err != nil {
		return 0, 0, err
	}
	n := len(t.claims)
	t.back(times)
	granted = t.fit(times)
	for range granted {
		if err := t.charge(1); err != nil {
			return granted, told, err
		}
		t.decide(decisions[told:][:n])
		told += n
	}
	if granted == 0 {
		t.decide(decisions[:n])
		t.stand(times, decisions[:n])
		told = n
	}
	return granted, told, nil
}
