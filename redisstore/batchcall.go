package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
)

// decideAlike decides requests of one shape in one call.
func (s *Store) decideAlike(ctx context.Context, chunk []entry, keys []string, ordered bool) {
	a := s.arguments.Get().(*arguments)
	defer s.arguments.Put(a)
	defer a.empty()
	a.now = s.clock
	multi := several(chunk)
	s.prepareBatch(a, chunk, keys, multi)
	again, err := s.askBatch(ctx, a, chunk, multi)
	var answer *redisconn.ServerError
	switch answered := errors.As(err, &answer); {
	case err == nil:
		s.decideEach(ctx, again, ordered)
	case answered && strings.HasPrefix(answer.Text, "TRYAGAIN"): // some keys of the slot have moved
		s.decideEach(ctx, chunk, ordered)
	case answered && packedKind(chunk[0].shape) != nil:
		// Redis is full or a replica, or MGET is forbidden: the script ended before its first write, because all of
		// its writes are refused alike. The other script answers the requests that write nothing.
		for i := range chunk {
			chunk[i].shape = unpacked(chunk[i].shape)
		}
		s.decideAlike(ctx, chunk, keys, ordered)
	default:
		for i := range chunk {
			c := callOf(chunk[i].Request)
			c.err = explain(err, c.claims)
			s.releases.leftover(&c)
			chunk[i].Err = c.err
		}
	}
}

// several counts the requests of other than one time, which come first.
func several(chunk []entry) (n int) {
	for n < len(chunk) && chunk[n].Times != 1 {
		n++
	}
	return n
}

// prepareBatch fills in the keys and arguments that assembleBatch documents.
func (s *Store) prepareBatch(a *arguments, chunk []entry, keys []string, multi int) {
	first := &chunk[0]
	for i := range first.Claims {
		a.kinds = append(a.kinds, first.kind(i))
	}
	for i := range chunk {
		a.words = append(a.words, keys[chunk[i].keys:][:len(first.Claims)]...)
	}
	same := alike(chunk)
	stride := 0
	if !same {
		stride = s.scripts.args(a.kinds)
	}
	a.add(int64(multi), int64(stride))
	for i := range multi {
		a.add(chunk[i].Times)
		a.times = max(a.times, chunk[i].Times)
	}
	for i := range chunk {
		if i == 0 || !same {
			a.addClaims(&chunk[i])
		}
	}
	s.addClock(a)
	a.cut()
}

// kind is the kind of one of the entry's claims in a batch.
func (e *entry) kind(claim int) *kind {
	if k := packedKind(e.shape); k != nil {
		return k
	}
	return kindOf(e.Claims[claim].Limit)
}

// alike reports whether the requests have the same arguments: the same limits and costs.
func alike(chunk []entry) bool {
	first := chunk[0].Claims
	for i := range chunk {
		for j := range first {
			c := &chunk[i].Claims[j]
			if c.Limit != first[j].Limit || c.Cost != first[j].Cost || c.Lease != "" {
				return false
			}
		}
	}
	return true
}

func (a *arguments) addClaims(e *entry) {
	for i, k := range a.kinds {
		k.args(a, &e.Claims[i])
	}
}

// askBatch makes the call. again are the requests that must be decided by themselves.
func (s *Store) askBatch(ctx context.Context, a *arguments, chunk []entry, multi int) (again []entry, err error) {
	ctx, stop := s.bound.limit(ctx)
	defer stop()
	keys := len(chunk) * len(a.kinds)
	behind := s.clocks.behind() && packedKind(chunk[0].shape) == nil
	a.reply, err = s.conn.Run(ctx, s.scripts.get(opBatch, a.kinds, behind), a.words[:keys], a.words[keys:], a.reply)
	if err != nil {
		return nil, err
	}
	if packedKind(chunk[0].shape) != nil {
		return a.readPacked(chunk, multi, s.config.clock != nil)
	}
	return a.readBatch(chunk, s.config.clock != nil)
}

// otherState is what the batch step of a packedKind says of a state that it does not read.
const otherState = 1 << 53

// readPacked takes the reply of the batch step of a packedKind apart: after now, a number of each
// request for each value of its state, and then what several times were granted.
func (a *arguments) readPacked(chunk []entry, multi int, driven bool) (again []entry, err error) {
	packed, several := "", 1+width(a.kinds)*len(chunk)
	if len(a.reply) == 1 {
		packed = a.reply[0].Text
	}
	if len(packed) != 8*(several+multi) {
		return nil, redisconn.Malformed("it is no text of %d numbers", several+multi)
	}
	for place := range several + multi {
		if n := word(packed, place); n > largest || n < -largest {
			return nil, redisconn.Malformed("number %d is not below 2^53", place+1)
		}
	}
	now := word(packed, 0)
	if err := timely(now, driven); err != nil {
		return nil, err
	}
	again = chunk[:0]
	for i := range chunk {
		e := chunk[i]
		ahead := word(packed, 1+i)
		if ahead == otherState {
			again = append(again, e)
			continue
		}
		c := callOf(e.Request)
		switch {
		case ahead < 0:
			ahead = -1 - ahead
		case i < multi:
			c.granted = word(packed, several+i)
		default:
			c.granted = 1
		}
		c.at = now
		if e.Err = c.inRange(driven); e.Err == nil {
			a.reply = append(a.reply[:0], redisconn.Value{Int: now + ahead})
			if several > 1+len(chunk) {
				a.reply = append(a.reply, redisconn.Value{Int: word(packed, 1+len(chunk)+i)})
			}
			c.readStates(a.kinds, a.reply)
			e.Granted = c.granted
		}
	}
	return again, nil
}

// word is the number at a place of a packed reply.
func word(packed string, place int) int64 {
	var b [8]byte
	copy(b[:], packed[8*place:])
	return int64(binary.LittleEndian.Uint64(b[:]))
}

// callOf is the call of a request of a batch. The caller sets granted and at.
func callOf(r *weir.Request) call {
	return call{op: opBatch, claims: r.Claims, times: r.Times, decisions: r.Decisions, each: r.Decisions != nil}
}

// readBatch takes the reply of assembleBatch's script apart.
func (a *arguments) readBatch(chunk []entry, driven bool) (again []entry, err error) {
	if err := a.checkBatch(chunk, driven); err != nil {
		return nil, err
	}
	now, rest := a.time(0, driven), a.reply[1:]
	again = chunk[:0]
	for i := range chunk {
		e, c := chunk[i], callOf(chunk[i].Request)
		c.granted, c.at = rest[0].Int, now
		switch {
		case c.granted == failed:
			e.Err = explain(&redisconn.ServerError{Text: rest[1].Text}, e.Claims)
		case c.granted == otherPeriod:
			again = append(again, e)
		default:
			c.readStates(a.kinds, rest[1:])
			e.Granted = c.granted
		}
		rest = rest[a.elements(rest):]
	}
	return again, nil
}

// elements is the number of elements of a batch's reply that belong to its next request.
func (a *arguments) elements(rest []redisconn.Value) int {
	if n := rest[0].Int; n == failed || n == otherPeriod {
		return 2
	}
	return 1 + width(a.kinds)
}

// checkBatch returns an error if a batch's reply does not have the shape of one.
func (a *arguments) checkBatch(chunk []entry, driven bool) error {
	if len(a.reply) == 0 {
		return redisconn.Malformed("it is empty")
	}
	a.hideTime(0, driven)
	if err := integers(a.reply[:1]); err != nil {
		return err
	}
	if err := timely(a.reply[0].Int, driven); err != nil {
		return err
	}
	rest := a.reply[1:]
	for i := range chunk {
		if len(rest) == 0 || len(rest) < a.elements(rest) {
			return redisconn.Malformed("it ends at request %d of %d", i+1, len(chunk))
		}
		about := rest[:a.elements(rest)]
		rest = rest[len(about):]
		if about[0].Int == failed && about[1].IsText {
			continue
		}
		if err := integers(about); err != nil {
			return err
		}
		if n := about[0].Int; n != otherPeriod && (n < 0 || n > chunk[i].Times) {
			return redisconn.Malformed("%d of %d requests are granted", n, chunk[i].Times)
		}
	}
	if len(rest) > 0 {
		return redisconn.Malformed("%d elements are too many", len(rest))
	}
	return nil
}
