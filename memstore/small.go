package memstore

import (
	"math"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
	"github.com/weirproject/weir/internal/algorithm/bucket"
	"github.com/weirproject/weir/internal/algorithm/window"
)

type bucketKind struct{ plain }

func bucketOf(s state) bucket.State { return bucket.State{At: s.a, Part: s.b} }

func (*bucketKind) available(l *weir.Limit, s state, floor int64, now moment) int64 {
	return bucket.Available(l, bucketOf(s), now.at) - floor
}

func (*bucketKind) charge(l *weir.Limit, s state, n int64, now moment, _ string) state {
	b := bucket.Charge(l, bucketOf(s), n, now.at)
	return state{a: b.At, b: b.Part}
}

func (*bucketKind) refund(l, other *weir.Limit, s state, r returned, now moment) (state, *weir.Limit, bool) {
	b := bucket.Cancel(l, bucketOf(adopt(other, l, s, now, false)), r.n, r.due, now.at)
	return state{a: b.At, b: b.Part}, l, true
}

func (*bucketKind) decision(l *weir.Limit, s state, cost, floor int64, now moment) weir.Decision {
	return bucket.Decision(l, bucketOf(s), cost+floor, now.at)
}

func (*bucketKind) adopt(from, to *weir.Limit, s state, now moment, _ bool) state {
	b := bucket.Adopt(from, to, bucketOf(s), now.at)
	return state{a: b.At, b: b.Part}
}

func (k *bucketKind) restore(l *weir.Limit, s state, n []int64, ids [][]byte) (state, bool) {
	s, ok := k.plain.restore(l, s, n, ids)
	return s, ok && (l.Step() || s.b < l.Interval().Den)
}

func (*bucketKind) newest(*weir.Limit, state) int64 { return math.MinInt64 }

func (k *bucketKind) take(l *weir.Limit, s state, cost, floor int64, now moment, _ bool) (a, b, remaining int64,
	retryAfter, resetAfter, delay time.Duration, granted bool) {
	after := bucketOf(s)
	switch {
	case l.Step():
		after, remaining, retryAfter, resetAfter, delay, granted = bucket.TakeStep(l, after, cost, floor, now.at)
		return after.At, after.Part, remaining, retryAfter, resetAfter, delay, granted
	case bucket.Short(l):
		ok := false
		after, remaining, retryAfter, resetAfter, delay, granted, ok = bucket.Take(l, after, cost, floor, now.at)
		if ok {
			return after.At, after.Part, remaining, retryAfter, resetAfter, delay, granted
		}
	}
	if granted = algorithm.Fit(bucket.Available(l, after, now.at)-floor, cost, 1) > 0; granted {
		after = bucket.Charge(l, after, cost, now.at)
	}
	d := bucket.Decision(l, after, cost+floor, now.at)
	return after.At, after.Part, algorithm.LessFloor(d.Remaining, floor), d.RetryAfter, d.ResetAfter, d.Delay, granted
}

type windowKind struct{ plain }

func windowOf(s state, now moment) window.State {
	return window.State{Start: s.a, Count: s.b, Until: s.until, Grid: now.grid}
}

func (*windowKind) available(l *weir.Limit, s state, floor int64, now moment) int64 {
	return window.Available(l, windowOf(s, now), now.at) - floor
}

func (*windowKind) charge(l *weir.Limit, s state, n int64, now moment, _ string) state {
	w := window.Charge(l, windowOf(s, now), n, now.at)
	return state{a: w.Start, b: w.Count}
}

func (*windowKind) settle(l, other *weir.Limit, s state, n int64, now moment) (state, *weir.Limit) {
	w, others := window.Settle(l, other, windowOf(s, now), n, now.at)
	if others {
		l = other
	}
	return state{a: w.Start, b: w.Count}, l
}

func (*windowKind) refund(l, other *weir.Limit, s state, r returned, now moment) (state, *weir.Limit, bool) {
	before := window.Adopt(other, l, windowOf(s, now))
	s.b = window.Refund(l, before, r.n, r.takenAt, now.at).Count
	return s, other, s.b < before.Count
}

func (*windowKind) decision(l *weir.Limit, s state, cost, floor int64, now moment) weir.Decision {
	return window.Decision(l, windowOf(s, now), cost+floor, now.at)
}

func (*windowKind) ahead(l *weir.Limit, s state, now moment) bool {
	return window.Ahead(l, windowOf(s, now), now.at)
}

func (*windowKind) back(l *weir.Limit, s state, now moment) state {
	w := window.Back(l, windowOf(s, now), now.at)
	return state{a: w.Start, b: w.Count}
}

func (*windowKind) adopt(from, to *weir.Limit, s state, now moment, _ bool) state {
	w := window.Adopt(from, to, windowOf(s, now))
	return state{a: w.Start, b: w.Count, until: w.Until}
}

func (*windowKind) newest(_ *weir.Limit, s state) int64 { return s.a }

func (*windowKind) take(l *weir.Limit, s state, cost, floor int64, now moment, _ bool) (a, b, remaining int64,
	retryAfter, resetAfter, delay time.Duration, granted bool) {
	var w window.State
	w, remaining, retryAfter, resetAfter, granted = window.Take(l, windowOf(s, now), cost, floor, now.at)
	return w.Start, w.Count, remaining, retryAfter, resetAfter, 0, granted
}
