package stories

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// A player drives a store through one story.
type player struct {
	t     testing.TB
	store weir.Store
	key   string
	limit *weir.Limit
	clock atomic.Int64

	member string // that asks in this step, of a fair limit
	weight int64
}

// midnight is the start of a story's durations: 2026-01-01T00:00:00Z.
const midnight = 1_767_225_600 * time.Second

// play returns the story with the answers of the store.
func (s story) play(t testing.TB, newStore NewStore) string {
	t.Helper()
	player := &player{t: t, key: s.file + " " + s.title}
	player.store = newStore(t, func() weir.Instant { return weir.Instant(player.clock.Load()) })
	var text strings.Builder
	for i, line := range strings.SplitAfter(s.text, "\n") {
		if isAnswer(line) {
			continue
		}
		text.WriteString(line)
		answer, err := player.line(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s:%d: %q: %v", s.file, s.first+i, strings.TrimSpace(line), err)
		}
		if answer != "" {
			text.WriteString("  " + answer + "\n")
		}
	}
	return text.String()
}

// line executes one line of a story; only a step has an answer.
func (t *player) line(line string) (answer string, err error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "", "#", "story:":
		return "", nil
	case "limit:":
		return "", t.setLimit(rest)
	case "at":
		at, step, ok := strings.Cut(rest, ": ")
		if !ok || t.limit == nil {
			return "", errors.New("want: at TIME: STEP, after a limit line")
		}
		now, err := instant(at)
		if err != nil {
			return "", err
		}
		t.clock.Store(int64(now))
		return t.step(strings.Fields(step))
	}
	return "", errors.New("want a line of story: limit: at or #")
}

func (t *player) setLimit(text string) error {
	spec, err := weir.ParseLimit(text)
	if err != nil {
		return err
	}
	t.limit, err = weir.NewLimit("story", spec)
	return err
}

func instant(text string) (weir.Instant, error) {
	if since, err := time.ParseDuration(text); err == nil {
		return weir.Instant((midnight + since).Microseconds()), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	return weir.Instant(at.UnixMicro()), err
}

// A step is the unread words of a line; its operation reads them one by one. Missing words and
// bad numbers are reported at the end.
type step struct {
	words []string
	err   error
}

func (s *step) word() string {
	if len(s.words) == 0 {
		s.err = errors.Join(s.err, errors.New("words are missing"))
		return ""
	}
	word := s.words[0]
	s.words = s.words[1:]
	return word
}

func (s *step) number() int64 {
	n, err := strconv.ParseInt(s.word(), 10, 64)
	s.err = errors.Join(s.err, err)
	return n
}

// optional is the number after a word; 0 if the word does not come next.
func (s *step) optional(word string) int64 {
	if len(s.words) == 0 || s.words[0] != word {
		return 0
	}
	s.words = s.words[1:]
	return s.number()
}

// after is the word that follows a given one, or otherwise if no words are left.
func (s *step) after(word, otherwise string) string {
	if len(s.words) == 0 {
		return otherwise
	}
	if got := s.word(); got != word {
		s.err = errors.Join(s.err, fmt.Errorf("%q where only %q may stand", got, word))
	}
	return s.word()
}

func (t *player) step(words []string) (answer string, err error) {
	s := &step{words: words}
	t.member, t.weight = "", 0
	if i := slices.Index(words, "by"); i >= 0 {
		by := step{words: words[i+1:]}
		t.member, t.weight = by.word(), by.optional("weight")
		s.words, s.err = slices.Concat(words[:i], by.words), by.err
	}
	switch op := s.word(); op {
	case "take", "peek", "acquire", "renew":
		answer = t.decide(op, s)
	case "charge", "settle":
		answer = t.charge(op, s)
	case "refund", "release":
		answer = t.refund(op, s)
	case "reset":
		answer = t.reset()
	default:
		s.err = errors.New("no such step")
	}
	if len(s.words) > 0 {
		s.err = errors.Join(s.err, fmt.Errorf("%q is too much", s.words))
	}
	return answer, s.err
}

func (t *player) claim(cost int64, lease string) []weir.Claim {
	claim := weir.Claim{Key: t.key, Limit: t.limit, Cost: cost, Lease: lease, Member: t.member, Weight: t.weight}
	return []weir.Claim{claim}
}

func (t *player) decide(op string, s *step) string {
	claims, times := t.claim(1, ""), int64(1)
	switch op {
	case "acquire", "renew":
		claims[0].Lease, claims[0].Renew = s.word(), op == "renew"
	case "peek":
		times = 0
	}
	if op != "renew" {
		claims[0].Cost = s.number()
	}
	claims[0].Floor = s.optional("floor")
	if op == "take" {
		k, err := strconv.ParseInt(s.after("times", "1"), 10, 64)
		s.err, times = errors.Join(s.err, err), k
	}
	decisions := make([]weir.Decision, 1)
	granted, err := t.store.Decide(t.t.Context(), claims, times, decisions)
	said := fmt.Sprintf("granted %d of %d, ", granted, times)
	if op == "peek" {
		said = ""
	}
	return t.answer(said, decisions[0], err)
}

func (t *player) charge(op string, s *step) string {
	decisions, claims := make([]weir.Decision, 1), t.claim(s.number(), "")
	claims[0].Settle = op == "settle"
	err := t.store.Charge(t.t.Context(), claims, decisions)
	return t.answer("", decisions[0], err)
}

func (t *player) refund(op string, s *step) string {
	claims, taken := t.claim(1, ""), weir.Instant(0)
	if op == "release" {
		claims[0].Lease = s.word()
	} else {
		var err error
		claims[0].Cost = s.number()
		taken, err = instant(s.after("taken", ""))
		s.err = errors.Join(s.err, err)
		claims[0].Delay, err = time.ParseDuration(s.after("delay", "0s"))
		s.err = errors.Join(s.err, err)
	}
	decisions := make([]weir.Decision, 1)
	err := t.store.Refund(t.t.Context(), claims, taken, decisions)
	if errors.Is(err, weir.ErrLeaseGone) {
		return t.answer("gone, ", decisions[0], nil)
	}
	return t.answer("", decisions[0], err)
}

func (t *player) reset() string {
	if err := t.store.Reset(t.t.Context(), t.claim(0, "")); err != nil {
		return "error: " + err.Error()
	}
	return "forgotten"
}

func (t *player) answer(said string, d weir.Decision, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	retry := "never retry"
	if d.RetryAfter != weir.Never {
		retry = "retry after " + d.RetryAfter.String()
	}
	said += fmt.Sprintf("remaining %d, %s, reset after %v", d.Remaining, retry, d.ResetAfter)
	if d.Delay != 0 {
		said += ", delay " + d.Delay.String()
	}
	if s := d.Standing; s != nil {
		said += fmt.Sprintf(", own %d of %d, weights %d, used %d, open %d", s.Own, s.Share, s.Weights, s.Used, s.Open)
		if s.Others {
			said += ", with others"
		}
	}
	if int64(d.At) != t.clock.Load() {
		said += fmt.Sprintf(", at %d", d.At) // never, unless the store is wrong
	}
	return said
}
