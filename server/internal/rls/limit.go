package rls

import (
	"math"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ratefields"
)

// units are the units of statuses, the longest first, in seconds.
var units = []struct {
	unit    ratelimit.RateLimitResponse_RateLimit_Unit
	seconds int64
}{
	{ratelimit.RateLimitResponse_RateLimit_WEEK, 7 * 24 * 3600}, {ratelimit.RateLimitResponse_RateLimit_DAY, 24 * 3600},
	{ratelimit.RateLimitResponse_RateLimit_HOUR, 3600}, {ratelimit.RateLimitResponse_RateLimit_MINUTE, 60},
	{ratelimit.RateLimitResponse_RateLimit_SECOND, 1},
}

// calendarUnits are the units of varying length.
var calendarUnits = map[weir.CalendarUnit]ratelimit.RateLimitResponse_RateLimit_Unit{
	weir.Month: ratelimit.RateLimitResponse_RateLimit_MONTH,
	weir.Year:  ratelimit.RateLimitResponse_RateLimit_YEAR,
}

// currentLimit is a limit as Envoy shows it: the most that it grants, and the time until that many units return, as
// in RateLimit-Policy. Envoy has whole seconds only: a limit of another time is shown by the second. A concurrency
// limit has no unit.
func currentLimit(l *weir.Limit) *ratelimit.RateLimitResponse_RateLimit {
	message := &ratelimit.RateLimitResponse_RateLimit{Name: l.Name(), RequestsPerUnit: clamped(l.Most())}
	if spec, ok := l.Spec().(weir.Calendar); ok && calendarUnits[spec.Unit] != 0 {
		message.Unit = calendarUnits[spec.Unit]
		return message
	}
	window := ratefields.Window(l)
	if l.Leases() || window == 0 {
		return message
	}
	seconds := window / second
	if window%second != 0 {
		seconds = 1
		message.RequestsPerUnit = clamped(int64(max(1, float64(l.Most())*second/float64(window))))
	}
	for _, u := range units {
		if seconds%u.seconds == 0 {
			message.Unit = u.unit
			if n := seconds / u.seconds; n > 1 {
				message.UnitMultiplier = wrapperspb.UInt32(clamped(n))
			}
			break
		}
	}
	return message
}

// second is a second in microseconds.
const second = 1_000_000

func clamped(n int64) uint32 { return uint32(min(n, math.MaxUint32)) }
