package storetest

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

//go:embed testdata/*.jsonl
var given embed.FS

// Vectors plays the traces of exact answers, core, floors, ahead (a clock that was ahead for a while), concurrency and
// fair (limits that members share), and those of the directory in WEIR_VECTORS, if it is set.
func Vectors(t *testing.T, s Subject) {
	files, err := fs.Sub(given, "testdata")
	if err != nil {
		t.Fatal(err)
	}
	vectorsIn(t, s, files)
	if dir := os.Getenv("WEIR_VECTORS"); dir != "" {
		t.Run("WEIR_VECTORS", func(t *testing.T) { vectorsIn(t, s, os.DirFS(dir)) })
	}
}

func vectorsIn(t *testing.T, s Subject, files fs.FS) {
	names, traces, err := loadVectors(files)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			b := open(t, s)
			for _, trace := range traces[i] {
				t.Run(trace.Name, func(t *testing.T) { trace.play(t, b) })
			}
		})
	}
}

// vectorFiles are the kinds of files of traces.
var vectorFiles = []string{"core*.jsonl", "floors*.jsonl", "ahead*.jsonl", "concurrency*.jsonl", "fair*.jsonl"}

// loadVectors reads all vectorFiles; none is an error.
func loadVectors(files fs.FS) (names []string, traces [][]trace, err error) {
	for _, pattern := range vectorFiles {
		found, _ := fs.Glob(files, pattern)
		names = append(names, found...)
	}
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("no files %s to play: point WEIR_VECTORS at a directory that has some",
			strings.Join(vectorFiles, ", "))
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, nil, err
		}
		read, err := readTraces(text)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		traces = append(traces, read)
	}
	return names, traces, nil
}

func readTraces(text []byte) (traces []trace, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var t trace
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields() // an unknown field must not be ignored
		if err := decoder.Decode(&t); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		traces = append(traces, t)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(traces) == 0 {
		return nil, errors.New("no traces")
	}
	return traces, nil
}

// A trace is one line of a vector file, of either form.
type trace struct {
	Name   string        `json:"name"`
	Limits []vectorLimit `json:"limits,omitempty"`
	Limit  *vectorLimit  `json:"limit,omitempty"`
	Steps  []vectorStep  `json:"steps"`
}

// A vectorLimit is a limit. Above and MaxKeys belong to a fair limit: its algorithm begins with fair_.
type vectorLimit struct {
	Algorithm string `json:"algorithm"`
	Capacity  int64  `json:"capacity,omitempty"`
	Refill    int64  `json:"refill,omitempty"`
	PeriodUs  int64  `json:"period_us,omitempty"`
	Overdraft int64  `json:"overdraft,omitempty"`
	Mode      string `json:"refill_mode,omitempty"`
	Limit     int64  `json:"limit,omitempty"`
	WindowUs  int64  `json:"window_us,omitempty"`
	Anchor    string `json:"anchor,omitempty"`
	Slices    int64  `json:"slices,omitempty"`
	Unit      string `json:"unit,omitempty"`
	Zone      string `json:"zone,omitempty"`
	TTLUs     int64  `json:"ttl_us,omitempty"`
	Above     int    `json:"above,omitempty"`
	MaxKeys   int64  `json:"max_keys,omitempty"`
}

type vectorStep struct {
	Op      string   `json:"op"`
	At      int64    `json:"at"`
	Costs   []int64  `json:"costs,omitempty"`
	Floors  []int64  `json:"floors,omitempty"`
	Members []string `json:"members,omitempty"` // by claim; "" if the limit is not fair
	Weights []int64  `json:"weights,omitempty"`
	Times   int64    `json:"times,omitempty"`
	TakenAt int64    `json:"taken_at,omitempty"`
	ID      string   `json:"id,omitempty"`
	Units   int64    `json:"units,omitempty"`

	Granted   *int64           `json:"granted,omitempty"`
	OK        *bool            `json:"ok,omitempty"`
	Decisions []vectorDecision `json:"decisions,omitempty"`
	Decision  *vectorDecision  `json:"decision,omitempty"`
}

type vectorDecision struct {
	Remaining    int64  `json:"remaining"`
	RetryAfterUs int64  `json:"retry_after_us"`
	ResetAfterUs int64  `json:"reset_after_us"`
	DelayUs      *int64 `json:"delay_us,omitempty"`
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// waitMicros is a RetryAfter in microseconds; Never is -1, as in traces.
func waitMicros(d time.Duration) int64 {
	if d == weir.Never {
		return -1
	}
	return d.Microseconds()
}

// spec is the limit as plain data; NewLimit refuses the one of unknown words.
func (v vectorLimit) spec() weir.Spec {
	if of, fair := strings.CutPrefix(v.Algorithm, "fair_"); fair {
		v.Algorithm = of
		return weir.Fair{Of: v.spec(), Above: v.Above, MaxKeys: v.MaxKeys}
	}
	switch v.Algorithm {
	case "token_bucket":
		mode := slices.Index([]string{"continuous", "step"}, v.Mode)
		if v.Mode == "" {
			mode = 0
		}
		return weir.TokenBucket{Capacity: v.Capacity, Refill: v.Refill, Period: micros(v.PeriodUs),
			Overdraft: v.Overdraft, Mode: weir.RefillMode(mode)}
	case "fixed_window":
		anchor := slices.Index([]string{"first", "epoch"}, v.Anchor)
		return weir.FixedWindow{Limit: v.Limit, Window: micros(v.WindowUs), Anchor: weir.Anchor(anchor)}
	case "calendar":
		units := []string{"none", "minute", "hour", "day", "week", "month", "year"}
		return weir.Calendar{Limit: v.Limit, Unit: weir.CalendarUnit(slices.Index(units, v.Unit)), Zone: v.Zone}
	case "sliding_log":
		return weir.SlidingLog{Limit: v.Limit, Window: micros(v.WindowUs)}
	case "sliding_counter":
		return weir.SlidingCounter{Limit: v.Limit, Window: micros(v.WindowUs), Slices: v.Slices}
	case "concurrency":
		return weir.Concurrency{Limit: v.Limit, TTL: micros(v.TTLUs)}
	}
	return nil
}

// play runs a trace in keys of its own: claim i uses key i.
func (tr trace) play(t TB, b *fixture) {
	t.Helper()
	claims, err := tr.claims(b)
	if err != nil {
		t.Fatalf("%s: %v", tr.Name, err)
	}
	for i, step := range tr.Steps {
		b.clock.set(step.At)
		if err := step.play(b, claims); err != nil {
			text, _ := json.Marshal(step)
			t.Fatalf("%s: step %d: %v\nstep: %s\nlimits: %s", tr.Name, i, err, text, claimsText(claims))
		}
	}
}

// claims has a claim for each limit, on keys of its own.
func (tr trace) claims(b *fixture) ([]weir.Claim, error) {
	limits := tr.Limits
	if tr.Limit != nil {
		limits = append(limits, *tr.Limit)
	}
	claims, keys := make([]weir.Claim, len(limits)), b.keysTogether(len(limits))
	for i, v := range limits {
		limit, err := weir.NewLimit(fmt.Sprint("claim-", i), v.spec())
		if err != nil {
			return nil, fmt.Errorf("limits[%d]: %w", i, err)
		}
		claims[i] = weir.Claim{Key: keys[i], Limit: limit}
	}
	return claims, nil
}

// claims are the claims of the step.
func (s *vectorStep) claims(claims []weir.Claim) []weir.Claim {
	claims = slices.Clone(claims)
	for i := range claims {
		c := &claims[i]
		c.Cost, c.Lease, c.Renew = max(1, s.Units), s.ID, s.Op == "renew"
		if s.ID == "" && i < len(s.Costs) {
			c.Cost = s.Costs[i]
		}
		if i < len(s.Floors) {
			c.Floor = s.Floors[i]
		}
		if i < len(s.Members) {
			c.Member, c.Weight = s.Members[i], s.Weights[i]
		}
	}
	return claims
}

// play does one step and compares its answer.
func (s *vectorStep) play(b *fixture, claims []weir.Claim) error {
	claims = s.claims(claims)
	want := s.Decisions
	if s.Decision != nil {
		want = []vectorDecision{*s.Decision}
	}
	if len(want) != len(claims) {
		return fmt.Errorf("the vector has %d decisions for %d claims", len(want), len(claims))
	}
	got := make([]weir.Decision, len(claims))
	granted, err := s.do(b.Store, claims, got)
	if err != nil {
		return err
	}
	wrong := s.compareGranted(granted)
	for i := range got {
		wrong = append(wrong, want[i].compare(i, got[i])...)
		if got[i].At != weir.Instant(s.At) {
			wrong = append(wrong, fmt.Errorf("decision %d: at: got %d, want %d", i, got[i].At, s.At))
		}
	}
	return errors.Join(wrong...)
}

func (s *vectorStep) do(store weir.Store, claims []weir.Claim, got []weir.Decision) (granted int64, err error) {
	ctx := context.Background()
	switch s.Op {
	case "take":
		return store.Decide(ctx, claims, s.Times, got)
	case "acquire", "renew":
		return store.Decide(ctx, claims, 1, got)
	case "peek":
		return store.Decide(ctx, claims, 0, got)
	case "charge":
		return 0, store.Charge(ctx, claims, got)
	case "refund":
		return 0, store.Refund(ctx, claims, weir.Instant(s.TakenAt), got)
	case "release":
		err := store.Refund(ctx, claims, weir.Instant(s.At), got)
		if errors.Is(err, weir.ErrLeaseGone) {
			return 0, nil
		}
		return 1, err
	}
	return 0, fmt.Errorf("unknown op %q", s.Op)
}

func (s *vectorStep) compareGranted(granted int64) (wrong []error) {
	if s.Granted != nil && granted != *s.Granted {
		wrong = append(wrong, fmt.Errorf("granted: got %d, want %d", granted, *s.Granted))
	}
	if s.OK != nil && (granted == 1) != *s.OK {
		wrong = append(wrong, fmt.Errorf("ok: got %v, want %v", granted == 1, *s.OK))
	}
	return wrong
}

func (v vectorDecision) compare(i int, got weir.Decision) (wrong []error) {
	field := func(name string, got, want int64) {
		if got != want {
			wrong = append(wrong, fmt.Errorf("decision %d: %s: got %d, want %d", i, name, got, want))
		}
	}
	field("remaining", got.Remaining, v.Remaining)
	field("retry_after_us", waitMicros(got.RetryAfter), v.RetryAfterUs)
	field("reset_after_us", got.ResetAfter.Microseconds(), v.ResetAfterUs)
	if v.DelayUs != nil {
		field("delay_us", got.Delay.Microseconds(), *v.DelayUs)
	}
	return wrong
}
