package backtest

// Spread is where the requests of one unit of the log's time, such as a second, are decided.
type Spread uint8

// The ways to spread.
const (
	Even  Spread = iota // apart from each other, in the order of the log
	First               // all at the begin of the unit
	Last                // all at its end
)

// Spreads are the words of the ways.
var Spreads = []string{"even", "first", "last"}

// String is the word.
func (s Spread) String() string { return Spreads[s] }

const (
	second = 1_000_000 // µs
	minute = 60 * second
	// maxGroup bounds the requests of one unit that are spread together. More are decided at its end.
	maxGroup = 1 << 16
)

// A spreader sets when requests are decided. They come in the order of their times.
type spreader struct {
	way   Spread
	group []event // of one time
	unit  int64   // of that time, in microseconds
	clock int64
	emit  func(*event)
}

// add takes the next request, with a time that is exact to a unit.
func (s *spreader) add(e *event, unit int64) {
	if len(s.group) > 0 && (s.group[0].time != e.time || len(s.group) == maxGroup) {
		s.flush(e.time)
	}
	s.unit = unit
	s.group = append(s.group, *e)
}

// flush passes on the group. The next request is at another time, or beyond the end of the log.
func (s *spreader) flush(next int64) {
	n := int64(len(s.group))
	room := s.unit
	if len(s.group) > 0 && next > s.group[0].time {
		room = min(room, next-s.group[0].time)
	}
	for i := range s.group {
		e := &s.group[i]
		at := e.time
		switch s.way {
		case Even:
			at += room * int64(i) / n
		case Last:
			at += s.unit - 1
		}
		s.clock = max(s.clock, at) // the clock does not go back
		e.at = s.clock
		s.emit(e)
	}
	clear(s.group)
	s.group = s.group[:0]
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
