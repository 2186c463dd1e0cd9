package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
)

// told is a Conn that answers every call with the same.
type told struct {
	reply []redisconn.Value
	err   error
}

func (c *told) Run(_ context.Context, _ *redisconn.Script, _, _ []string, reply []redisconn.Value) ([]redisconn.Value, error) {
	return append(reply, c.reply...), c.err
}
func (c *told) Delete(context.Context, []string) error { return c.err }
func (c *told) Cluster() bool                          { return false }
func (c *told) Close()                                 {}

func ones(n int) []redisconn.Value { return slices.Repeat([]redisconn.Value{{Int: 1}}, n) }

func texts(n int) []redisconn.Value {
	return slices.Repeat([]redisconn.Value{{Text: "1", IsText: true}}, n)
}

// everyKind are limits of all kinds of scripts.
var everyKind = []weir.Spec{
	weir.PerHour(5), weir.GCRA(5, 7, time.Hour), weir.TokenBucket{Capacity: 5, Refill: 1, Period: time.Hour, Mode: weir.Step},
	weir.FixedWindow{Limit: 5, Window: time.Hour}, weir.Calendar{Limit: 5, Unit: weir.Day}, weir.SlidingLog{Limit: 5, Window: time.Hour},
	weir.SlidingCounter{Limit: 5, Window: time.Hour, Slices: 10}, weir.Concurrency{Limit: 5, TTL: time.Hour},
}

func oneClaim(spec weir.Spec) weir.Claim {
	c := weir.Claim{Key: "key", Limit: weir.MustLimit("limit", spec), Cost: 1}
	if c.Limit.Algorithm() == weir.AlgorithmConcurrency {
		c.Lease = "lease"
	}
	return c
}

// TestReplyOfAnotherShapeIsAnError: an array of 100,000 ones was a grant, one of five texts a refusal.
func TestReplyOfAnotherShapeIsAnError(t *testing.T) {
	replies := map[string][]redisconn.Value{
		"nothing": {}, "one": ones(1), "100,000 ones": ones(100_000), "five texts": texts(5), "more than 2^53": {{Int: 1<<53 + 1}, {Int: 5}}, "a large number": {{Int: 1<<62 + 1}, {Int: 5}},
	}
	for n := 2; n < 12; n++ {
		replies[fmt.Sprint(n, " ones")], replies[fmt.Sprint(n, " texts")] = ones(n), texts(n)
	}
	for name, reply := range replies {
		store, err := New(&told{reply: reply})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		for _, spec := range everyKind {
			claims, decisions := []weir.Claim{oneClaim(spec)}, make([]weir.Decision, 1)
			for _, times := range []int64{0, 1, 7} {
				if claims[0].Lease != "" {
					times = min(times, 1)
				}
				if granted, err := store.Decide(t.Context(), claims, times, decisions); !errors.Is(err, weir.ErrUnavailable) || granted != 0 {
					t.Errorf("%s, %s times %d: granted %d, %v", name, spec, times, granted, err)
				}
			}
			charge, refund := store.Charge(t.Context(), claims, decisions), store.Refund(t.Context(), claims, 1, nil)
			if !errors.Is(charge, weir.ErrUnavailable) || !errors.Is(refund, weir.ErrUnavailable) {
				t.Errorf("%s, %s: charge %v, refund %v", name, spec, charge, refund)
			}
			batch := []weir.Request{{Claims: claims, Times: 1}, {Claims: []weir.Claim{oneClaim(spec)}, Times: 1}}
			batch[1].Claims[0].Key = "other"
			store.DecideBatch(t.Context(), batch)
			for _, r := range batch {
				if r.Err == nil || r.Granted != 0 {
					t.Errorf("%s, %s in a batch: granted %d, %v", name, spec, r.Granted, r.Err)
				}
			}
		}
	}
}

// TestErrorTextWithAKeyIsNoErrorOfTheScript: Redis repeats the words of a command that it does not know.
func TestErrorTextWithAKeyIsNoErrorOfTheScript(t *testing.T) {
	const sha = "0123456789012345678901234567890123456789"
	for text, foreign := range map[string]bool{
		"unknown command 'EVALSHA', with args beginning with: 'WEIR foreign 0 x'": false,
		"unknown command 'EVALSHA', with args beginning with: 'WRONGTYPE '":       false,
		"WEIR foreign 0": true, "WEIR foreign 1": true, "WEIR foreign -5": true, "WEIR foreign 99999999999999999999": true, "WEIR foreign ": true,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                     true,
		"Error running script (call to f_" + sha + "): @user_script:9: WRONGTYPE Operation":                     true,
		"Error running script (call to f_" + sha + "): @user_script: 12: @user_script: 12: WRONGTYPE Operation": true,
		"Error running script (call to f_" + sha + "): unknown 'WRONGTYPE '":                                    false,
		"Error running script (call to f_":                                                                      false, "@user_script:": false, "": false,
	} {
		err := explain(&redisconn.ServerError{Text: text}, []weir.Claim{oneClaim(weir.PerHour(1))})
		if errors.Is(err, weir.ErrForeignState) != foreign || errors.Is(err, weir.ErrUnavailable) == foreign {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzErrorText(f *testing.F) {
	f.Add("WEIR foreign 0 x")
	f.Add("Error running script (call to f_0123456789012345678901234567890123456789): @user_script:1: WRONGTYPE x")
	f.Fuzz(func(t *testing.T, text string) {
		err := explain(&redisconn.ServerError{Text: text}, []weir.Claim{oneClaim(weir.PerHour(1)), oneClaim(weir.PerDay(1))})
		if errors.Is(err, weir.ErrForeignState) && !strings.Contains(text, "WEIR foreign ") && !strings.Contains(text, "WRONGTYPE ") {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// FuzzReply gives the store any numbers and texts as a reply: no panic, and never more granted than asked for.
func FuzzReply(f *testing.F) {
	for i := range everyKind {
		f.Add(byte(i), byte(1), []byte{1, 255, 255, 255, 255, 255, 255, 31, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0})
		f.Add(byte(i), byte(0), []byte{})
	}
	f.Fuzz(func(t *testing.T, kind, times byte, reply []byte) {
		store, err := New(&told{reply: valuesOf(reply)})
		if err != nil {
			t.Fatal(err)
		}
		claims := []weir.Claim{oneClaim(everyKind[int(kind)%len(everyKind)])}
		var decisions [1]weir.Decision
		if granted, err := store.Decide(t.Context(), claims, int64(times), decisions[:]); granted < 0 || granted > int64(times) || err != nil && granted != 0 {
			t.Errorf("granted %d of %d, %v", granted, times, err)
		}
		_ = store.Charge(t.Context(), claims, decisions[:])
		_ = store.Refund(t.Context(), claims, 1, decisions[:])
		other := slices.Clone(claims)
		other[0].Key = "other"
		batch := []weir.Request{{Claims: claims, Times: int64(times)}, {Claims: other, Times: 1, Decisions: decisions[:]}}
		store.DecideBatch(t.Context(), batch)
		for _, r := range batch {
			if r.Granted < 0 || r.Granted > r.Times || r.Err != nil && r.Granted != 0 {
				t.Errorf("in a batch granted %d of %d, %v", r.Granted, r.Times, r.Err)
			}
		}
	})
}

// valuesOf reads elements of 9 bytes: a form and a number, or as much text.
func valuesOf(text []byte) (values []redisconn.Value) {
	for ; len(text) >= 9; text = text[9:] {
		n := int64(binary.LittleEndian.Uint64(text[1:9]))
		switch text[0] % 4 {
		case 0:
			values = append(values, redisconn.Value{Text: strings.Repeat(string(text[1:9]), int(text[0]/4)), IsText: true})
		case 1:
			values = append(values, redisconn.Value{Int: n >> 10})
		case 2:
			values = append(values, redisconn.Value{Int: n % 16})
		default:
			values = append(values, redisconn.Value{Int: n})
		}
	}
	return values
}
