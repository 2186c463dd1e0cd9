package history

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
)

// A slice is a record of an interval with its marks.
type slice struct {
	telemetry.Record
	Marks []telemetry.Mark
}

// Bounds of a packed slice. It is read from Redis or a file, so that it may be anything.
const (
	format     = 1                         // first byte
	mostPacked = 2 << 20                   // bytes
	mostRaw    = 4 << 20                   // bytes before compression
	mostWord   = 2048                      // bytes of a text
	mostRules  = telemetry.MostRules + 256 // those in force, some that were removed, and others
	mostMarks  = 256
	lastSecond = 1 << 33 // of times, since 1970: year 2242
)

var (
	errPacked = errors.New("history: the record is malformed")

	deflaters = sync.Pool{New: func() any {
		w, _ := flate.NewWriter(nil, flate.BestSpeed) // the level is valid
		return w
	}}
	inflaters = sync.Pool{New: func() any { return flate.NewReader(bytes.NewReader(nil)) }}
)

// pack encodes a slice: the format, and then numbers as varints and texts with their lengths, compressed. A slice that
// is too large loses its keys, and then half of its rules again and again, whose counts stay in the sum of the others.
func pack(s *slice, keys int) []byte {
	most := mostRules
	for {
		if raw := appendSlice(nil, folded(s, most), keys); len(raw) <= mostRaw {
			if text := deflate(raw); len(text) <= mostPacked {
				return text
			}
		}
		if keys == 0 {
			most /= 2
		}
		keys = 0
	}
}

// folded is the slice with the counts of its last rules in one sum, if it has more than so many.
func folded(s *slice, most int) *slice {
	if len(s.Rules) <= most {
		return s
	}
	out := *s
	rest := telemetry.RuleRecord{Name: telemetry.OtherRules}
	out.Rules = slices.Clone(s.Rules[:max(0, most-1)])
	for i := range s.Rules[len(out.Rules):] {
		r := &s.Rules[len(out.Rules)+i]
		rest.Counts.Add(&r.Counts)
		rest.Compared.Add(&r.Compared)
	}
	out.Rules = append(out.Rules, rest)
	return &out
}

func deflate(raw []byte) []byte {
	out := bytes.NewBuffer([]byte{format})
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(out)
	_, _ = w.Write(raw) // a Buffer has no errors
	_ = w.Close()
	return out.Bytes()
}

// keysPerSlice is the maximum number of keys of a packed minute, over all rules: those of refused requests first, and
// the first of each rule before the second of any. keysPerFine is that of ten seconds, which stay in memory.
const (
	keysPerSlice = 512
	keysPerFine  = 2048
)

func appendSlice(b []byte, s *slice, keys int) []byte {
	b = binary.AppendUvarint(b, uint64(s.At.Unix()))
	b = binary.AppendUvarint(b, uint64(s.Step/time.Second))
	b = appendCounts(b, &s.Total)
	b = binary.AppendUvarint(b, uint64(len(s.Took)))
	for _, bucket := range s.Took {
		b = binary.AppendUvarint(append(b, bucket.Index), bucket.Count)
	}
	least, each := shareOfKeys(s.Rules, keys)
	b = binary.AppendUvarint(b, uint64(len(s.Rules)))
	for i := range s.Rules {
		r := &s.Rules[i]
		b = appendCounts(appendWord(b, r.Name), &r.Counts)
		c := &r.Compared
		for _, n := range [...]uint64{c.Both, c.NewlyRefused, c.NewlyGranted, c.Neither, r.Distinct} {
			b = binary.AppendUvarint(b, n)
		}
		b = appendKeys(b, r.Top, least, each)
	}
	b = binary.AppendUvarint(b, uint64(min(len(s.Marks), mostMarks)))
	for i := range s.Marks[:min(len(s.Marks), mostMarks)] {
		m := &s.Marks[i]
		b = binary.AppendUvarint(b, uint64(m.At.UnixMilli()))
		for _, word := range [...]string{m.Kind, m.Node, m.Rule, m.Text, m.Actor, m.Reason, m.Change} {
			b = appendWord(b, word)
		}
	}
	return b
}

// shareOfKeys is how many refused requests a key must have, and how many of such keys a rule has, so that there are at
// most so many keys.
func shareOfKeys(rules []telemetry.RuleRecord, keys int) (least uint64, each int) {
	count := func() (n int) {
		for i := range rules {
			n += keysFrom(rules[i].Top, least, each)
		}
		return n
	}
	each = math.MaxInt
	if count() > keys {
		least = 1
	}
	for each = min(keys, 2*keysPerRule); each > 0 && count() > keys; each-- {
	}
	return least, each
}

// keysFrom is the number of keys with as many refused requests, and at most so many.
func keysFrom(top []telemetry.KeyRate, least uint64, most int) (n int) {
	for i := range top {
		if top[i].Refused >= least && n < most {
			n++
		}
	}
	return n
}

func appendKeys(b []byte, top []telemetry.KeyRate, least uint64, most int) []byte {
	var kept []*telemetry.KeyRate
	for i := range top {
		if top[i].Refused >= least && len(kept) < most {
			kept = append(kept, &top[i])
		}
	}
	b = binary.AppendUvarint(b, uint64(len(kept)))
	for _, k := range kept {
		hidden := byte(0)
		if k.Hidden {
			hidden = 1
		}
		b = append(appendWord(b, k.Key), hidden)
		b = binary.AppendUvarint(binary.AppendUvarint(b, k.Passed), k.Refused)
	}
	return b
}

func appendCounts(b []byte, c *telemetry.Counts) []byte {
	for _, n := range parts(c) {
		b = binary.AppendUvarint(b, *n)
	}
	return b
}

// parts are the numbers of counts.
func parts(c *telemetry.Counts) [8]*uint64 {
	return [...]*uint64{&c.Passed, &c.Refused, &c.Denied, &c.Failed, &c.ShadowPassed, &c.ShadowRefused, &c.Degraded,
		&c.Bans}
}

func appendWord(b []byte, word string) []byte {
	word = word[:min(len(word), mostWord)]
	return append(binary.AppendUvarint(b, uint64(len(word))), word...)
}

// unpack decodes a slice. It never allocates more than its input and mostRaw allow.
func unpack(packed []byte) (*slice, error) {
	if len(packed) == 0 || len(packed) > mostPacked || packed[0] != format {
		return nil, fmt.Errorf("%w: %d bytes, or another format", errPacked, len(packed))
	}
	inflater := inflaters.Get().(io.ReadCloser)
	defer inflaters.Put(inflater)
	_ = inflater.(flate.Resetter).Reset(bytes.NewReader(packed[1:]), nil) // has no errors
	raw, err := io.ReadAll(io.LimitReader(inflater, mostRaw+1))
	if err != nil || len(raw) > mostRaw {
		return nil, fmt.Errorf("%w: %d bytes, %v", errPacked, len(raw), err)
	}
	u := &unpacker{left: raw, text: string(raw), keys: keysPerFine}
	s := u.slice()
	if u.bad || len(u.left) > 0 {
		return nil, errPacked
	}
	return s, nil
}

// An unpacker reads values. After the first malformed one all are zero.
type unpacker struct {
	left []byte
	text string // all of it, of which words are parts
	keys int    // that may still come
	bad  bool
}

func (u *unpacker) fail() { u.bad, u.left, u.text = true, nil, "" }

func (u *unpacker) number() uint64 {
	n, size := binary.Uvarint(u.left)
	if size <= 0 {
		u.fail()
		return 0
	}
	u.left = u.left[size:]
	return n
}

func (u *unpacker) octet() byte {
	if len(u.left) == 0 {
		u.fail()
		return 0
	}
	b := u.left[0]
	u.left = u.left[1:]
	return b
}

// most reads the length of a list.
func (u *unpacker) most(most uint64) int {
	n := u.number()
	if n > most {
		u.fail()
		return 0
	}
	return int(n)
}

func (u *unpacker) word() string {
	n := u.most(mostWord)
	if n > len(u.left) {
		u.fail()
		return ""
	}
	at := len(u.text) - len(u.left)
	u.left = u.left[n:]
	return strings.ToValidUTF8(u.text[at:at+n], "\uFFFD")
}

func (u *unpacker) moment(unit time.Duration) time.Time {
	n := u.number()
	if n > uint64(lastSecond*(time.Second/unit)) {
		u.fail()
		return time.Time{}
	}
	if unit == time.Second {
		return time.Unix(int64(n), 0).UTC()
	}
	return time.UnixMilli(int64(n)).UTC()
}

func (u *unpacker) counts(c *telemetry.Counts) {
	for _, n := range parts(c) {
		*n = u.number()
	}
}

func (u *unpacker) slice() *slice {
	s := new(slice)
	s.At = u.moment(time.Second)
	s.Step = time.Duration(min(u.number(), 3600)) * time.Second
	u.counts(&s.Total)
	last := -1
	for range u.most(256) {
		bucket := tally.Bucket{Index: u.octet(), Count: u.number()}
		if int(bucket.Index) <= last {
			u.fail()
			return s
		}
		last = int(bucket.Index)
		s.Took = append(s.Took, bucket)
	}
	s.Rules = make([]telemetry.RuleRecord, u.most(mostRules))
	for i := range s.Rules {
		u.rule(&s.Rules[i])
	}
	for range u.most(mostMarks) {
		m := telemetry.Mark{At: u.moment(time.Millisecond)}
		for _, word := range [...]*string{&m.Kind, &m.Node, &m.Rule, &m.Text, &m.Actor, &m.Reason, &m.Change} {
			*word = u.word()
		}
		s.Marks = append(s.Marks, m)
	}
	return s
}

func (u *unpacker) rule(r *telemetry.RuleRecord) {
	r.Name = u.word()
	u.counts(&r.Counts)
	c := &r.Compared
	for _, n := range [...]*uint64{&c.Both, &c.NewlyRefused, &c.NewlyGranted, &c.Neither, &r.Distinct} {
		*n = u.number()
	}
	n := u.most(uint64(u.keys))
	if n > 0 {
		r.Top = make([]telemetry.KeyRate, 0, n)
	}
	for range n {
		k := telemetry.KeyRate{Key: u.word()}
		k.Hidden = u.octet() == 1
		k.Passed, k.Refused = u.number(), u.number()
		r.Top = append(r.Top, k)
		u.keys--
	}
}
