package history

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
)

// A document has the counts of a process in an interval, with its marks. It is kept as compressed JSON.
type document struct {
	telemetry.Record
	Marks []telemetry.Mark `json:"marks,omitempty"`
}

// A slot is the interval of a document: a minute, or ten of them.
type slot struct {
	step time.Duration
	at   int64 // number of the interval since 1970
}

const (
	minute = time.Minute
	ten    = 10 * time.Minute
)

var steps = [...]time.Duration{minute, ten}

func slotOf(step time.Duration, at time.Time) slot {
	return slot{step, at.Unix() / int64(step/time.Second)}
}

func (s slot) start() time.Time { return time.Unix(s.at*int64(s.step/time.Second), 0).UTC() }

func (s slot) end() time.Time { return s.start().Add(s.step) }

// String is part of keys and the name of a file: 1m-20261122T1703.
func (s slot) String() string {
	return fmt.Sprintf("%.0fm-%s", s.step.Minutes(), s.start().Format(slotTime))
}

const slotTime = "20060102T1504"

// parseSlot reads what String wrote.
func parseSlot(text string) (s slot, ok bool) {
	_, start, _ := strings.Cut(text, "-")
	at, err := time.Parse(slotTime, start)
	for _, step := range steps {
		if s = slotOf(step, at); err == nil && s.String() == text {
			return s, true
		}
	}
	return slot{}, false
}

// keeps is how long documents are kept: minutes for a while, and ten minutes for a day.
func (s slot) keeps() time.Duration {
	if s.step == minute {
		return keptMinutes
	}
	return kept
}

// between are the slots from a time to another.
func between(step time.Duration, from, to time.Time) (list []slot) {
	for s := slotOf(step, from); s.start().Before(to); s.at++ {
		list = append(list, s)
	}
	return list
}

// Bounds of a document. It is read from Redis or a file, so that it may be anything.
const (
	maxPacked = 512 << 10 // bytes
	maxRaw    = 8 << 20   // bytes before compression
	maxRules  = telemetry.MostRules + 256
	maxMarks  = 256
	maxWord   = 2048 // bytes of the text of a mark
	maxKeys   = 512  // of all rules

	maxClasses = 64 // of a rule, classes of earlier versions included
)

var errDocument = errors.New("history: the document is malformed")

// pack encodes a document. One that is too large loses its keys, and then half of its rules again and again; their
// counts stay in the sum of the others.
func (d *document) pack() []byte {
	d.Marks = d.Marks[:min(len(d.Marks), maxMarks)]
	for rules, keys := maxRules, maxKeys; ; {
		d.trimKeys(keys)
		d.fold(rules)
		d.setParts()
		raw, err := json.Marshal(d)
		if err == nil && len(raw) <= maxRaw {
			if text := compress(raw); len(text) <= maxPacked {
				return text
			}
		}
		switch {
		case keys > 0:
			keys = 0
		case rules > 1:
			rules /= 2
		default:
			d.Marks = d.Marks[:len(d.Marks)/2]
		}
	}
}

var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return z
}}

func compress(raw []byte) []byte {
	var out bytes.Buffer
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(&out)
	_, _ = z.Write(raw) // a Buffer has no errors
	_ = z.Close()
	return out.Bytes()
}

// trimKeys leaves as many keys: keys with refused requests first, and the first of each rule before the second of any.
func (d *document) trimKeys(most int) {
	type ranked struct {
		rule, rank int
		telemetry.KeyRate
	}
	var list []ranked
	for i := range d.Rules {
		for rank, key := range d.Rules[i].Top {
			list = append(list, ranked{i, rank, key})
		}
		d.Rules[i].Top = nil
	}
	slices.SortStableFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(min(1, b.Refused), min(1, a.Refused)), cmp.Compare(a.rank, b.rank),
			cmp.Compare(b.Refused, a.Refused))
	})
	for _, one := range list[:min(most, len(list))] {
		r := &d.Rules[one.rule]
		r.Top = append(r.Top, one.KeyRate)
	}
}

// setParts makes the lists of counts, without the zeros at their ends.
func (d *document) setParts() {
	for i := range d.Rules {
		r := &d.Rules[i]
		last := 0
		list := make([]uint64, 0, len(partsOf(r)))
		for part, of := range partsOf(r) {
			if list = append(list, *of); *of != 0 {
				last = part + 1
			}
		}
		r.Parts = list[:last]
	}
}

// partsOf are the counts of a rule, in the order of a document.
func partsOf(r *telemetry.RuleRecord) [17]*uint64 {
	n, c := parts(&r.Counts), &r.Compared
	return [...]*uint64{n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7],
		&c.Both, &c.NewlyRefused, &c.NewlyGranted, &c.Neither, n[8], n[9], n[10], n[11], n[12]}
}

// fold puts the counts of the last rules into one sum, if there are more than so many.
func (d *document) fold(most int) {
	if len(d.Rules) <= most {
		return
	}
	rest := telemetry.RuleRecord{Name: telemetry.OtherRules}
	for i := range d.Rules[max(0, most-1):] {
		r := &d.Rules[max(0, most-1)+i]
		rest.Counts.Add(&r.Counts)
		rest.Compared.Add(&r.Compared)
	}
	d.Rules = append(d.Rules[:max(0, most-1):max(0, most-1)], rest)
}

// unpack decodes a document.
func unpack(packed []byte) (*document, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed[:min(len(packed), maxPacked)]))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDocument, err)
	}
	raw, err := io.ReadAll(io.LimitReader(z, maxRaw+1))
	d := new(document)
	if err == nil {
		err = json.Unmarshal(raw, d)
	}
	if err != nil || len(raw) > maxRaw || len(d.Rules) > maxRules {
		return nil, fmt.Errorf("%w: %d bytes, %v", errDocument, len(raw), err)
	}
	for i := range d.Rules {
		r := &d.Rules[i]
		for part, of := range partsOf(r) {
			if part < len(r.Parts) {
				*of = r.Parts[part]
			}
		}
		r.Parts = nil
	}
	ascending := slices.IsSortedFunc(d.Took, func(a, b tally.Bucket) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), -1) // equal ones are out of order too
	})
	if !ascending {
		return nil, errDocument // sums rely on it
	}
	return d, nil
}
