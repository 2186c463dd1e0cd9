package storetest

import "github.com/weirproject/weir"

// agree compares what a store said to a step with what is true.
func (b *bench) agree(got, want outcome, s *step, claims []weir.Claim) bool {
	if got.equal(want) {
		return true
	}
	refused := s.op == "take" && s.times > 0 && got.granted == 0 && want.granted == 0
	return b.Recalls && refused && len(got.decisions) == len(want.decisions) && recalled(got.decisions, want.decisions, claims)
}

// recalled reports whether a refusal may have been told from memory: at the true instant,
// who is said to refuse does, and somebody is.
func recalled(got, want []weir.Decision, claims []weir.Claim) bool {
	refused := false
	for i := range got {
		if got[i] != want[i] && !asOfEarlier(got[i], want[i], claims[i].Cost) {
			return false
		}
		refused = refused || got[i].RetryAfter != 0
	}
	return refused
}

// asOfEarlier is about a claim of which the truth is not told. One that refuses a unit, or
// none, has no excuse.
func asOfEarlier(got, want weir.Decision, cost int64) bool {
	switch {
	case got.At != want.At || (got.RetryAfter == weir.Never) != (want.RetryAfter == weir.Never):
		return false
	case got.RetryAfter == 0 || got.RetryAfter == weir.Never: // it does not refuse, or whatever its state is
		return true
	}
	return cost > 1 && got.Remaining < cost && want.RetryAfter > 0
}

// recalled is the same of a trace's step.
func (s *vectorStep) recalled(got []weir.Decision, claims []weir.Claim) bool {
	if s.Op != "take" || s.Times == 0 {
		return false
	}
	want := make([]weir.Decision, len(got))
	for i, v := range s.Decisions {
		want[i] = weir.Decision{Remaining: v.Remaining, RetryAfter: micros(v.RetryAfterUs), ResetAfter: micros(v.ResetAfterUs), Delay: got[i].Delay, At: weir.Instant(s.At)}
		if v.RetryAfterUs < 0 {
			want[i].RetryAfter = weir.Never
		}
		if v.DelayUs != nil {
			want[i].Delay = micros(*v.DelayUs)
		}
	}
	return recalled(got, want, claims)
}
