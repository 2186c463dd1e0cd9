package top

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gdamore/tcell/v3"

	"github.com/weirproject/weir/internal/telemetry"
)

// A minute is the sum of the last points of a series, about a minute.
type minute struct {
	telemetry.Counts
	P99     time.Duration
	seconds float64
}

// recent sums the last complete points. The last point of a series is not over yet.
func recent(o *telemetry.Overview) minute {
	m := minute{seconds: 1}
	if len(o.Series) < 2 || o.Step <= 0 {
		return m
	}
	n := max(1, int(time.Minute/o.Step))
	points := o.Series[max(0, len(o.Series)-1-n) : len(o.Series)-1]
	for i := range points {
		p := &points[i]
		m.Passed += p.Passed
		m.Refused += p.Refused
		m.Denied += p.Denied
		m.Failed += p.Failed
		m.Degraded += p.Degraded
		m.P99 = max(m.P99, p.P99)
	}
	m.seconds = o.Step.Seconds() * float64(len(points))
	return m
}

// storeP99 is that of the slowest node.
func storeP99(nodes []telemetry.Node) (p99 time.Duration) {
	for i := range nodes {
		p99 = max(p99, nodes[i].StoreP99)
	}
	return p99
}

// alarm is the style of a share of requests that should be small.
func alarm(share float64) tcell.Style {
	switch {
	case share >= 0.1:
		return bad
	case share > 0:
		return warning
	}
	return plain
}

// short is a number in at most six characters: 7, 0.3, 9876, 12.3k.
func short(n float64) string {
	switch {
	case n < 10 && n != math.Trunc(n):
		return strconv.FormatFloat(n, 'f', 1, 64)
	case n < 9999.5:
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	unit := 0
	for n >= 999.95 && unit < len("kMGTPE") {
		n /= 1000
		unit++
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + "kMGTPE"[unit-1:unit]
}

// Percent is a part of a whole, or 0 %. A small part differs from none, and almost all from all.
func Percent(of, whole uint64) string { return percent(part(of, whole)) }

func percent(share float64) string {
	switch {
	case share > 0 && share < 0.001:
		return "<0.1%"
	case share > 0.999 && share < 1:
		return ">99.9%"
	}
	return strconv.FormatFloat(100*share, 'f', 1, 64) + "%"
}

func latency(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

// period is a duration without the zeros that Go prints: 15m, 24h.
func period(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
