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
	a.now, a.behind = s.clock, s.clocks.behind() && packedKind(chunk[0].shape) == nil
	multi := several(chunk)
	s.prepareBatch(a, chunk, keys, multi, ordered)
	again, err := s.askBatch(ctx, a, chunk, multi)
	var answer *redisconn.ServerError
	switch answered := errors.As(err, &answer); {
	case err == nil:
		s.decideEach(ctx, again, ordered)
	case answered && strings.HasPrefix(answer.Text, "TRYAGAIN"): // some keys of the slot have moved
		s.decideEach(ctx, chunk, ordered)
	case answered && packedKind(chunk[0].shape) != nil:
		// Redis is full or a replica, or MGET is forbidden: the script ended before its first write, because all of
		// its writes are refused alike. The other script answers the requests that do not write.
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

// several counts the requests with other times than 1, which come first.
func several(chunk []entry) (n int) {
	for n < len(chunk) && chunk[n].Times != 1 {
		n++
	}
	return n
}

// prepareBatch fills in the keys and arguments that assembleBatch documents.
func (s *Store) prepareBatch(a *arguments, chunk []entry, keys []string, multi int, repeats bool) {
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
		stride = s.scripts.args(a.kinds, a.behind)
	}
	a.add(int64(multi), int64(stride))
	if packedKind(first.shape) == nil {
		once := int64(1)
		if repeats {
			once = 0
		}
		a.add(once)
	}
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

// alike reports whether the requests have the same arguments: the same limits and costs, and no
// members.
func alike(chunk []entry) bool {
	first := chunk[0].Claims
	for i := range chunk {
		for j := range first {
			c := &chunk[i].Claims[j]
			if c.Limit != first[j].Limit || c.Cost != first[j].Cost || c.Floor != first[j].Floor || c.Lease != "" ||
				c.Limit.Whole() != nil {
				return false
			}
		}
	}
	return true
}

func (a *arguments) addClaims(e *entry) {
	for i, k := range a.kinds {
		a.addClaim(k, &e.Claims[i])
	}
}

// askBatch makes the call. again are the requests that must be decided separately.
func (s *Store) askBatch(ctx context.Context, a *arguments, chunk []entry, multi int) (again []entry, err error) {
	ctx, stop := s.bound.limit(ctx)
	defer stop()
	keys := len(chunk) * len(a.kinds)
	a.reply, err = s.conn.Run(ctx, s.scripts.get(opBatch, a.kinds, a.behind), a.words[:keys], a.words[keys:], a.reply)
	if err != nil {
		return nil, err
	}
	if packedKind(chunk[0].shape) != nil {
		return a.readPacked(chunk, multi, s.config.clock != nil)
	}
	return a.readBatch(chunk, s.config.clock != nil)
}

// otherState is the code of a batch step for a state that it does not read.
const otherState = 1 << 53

// unpack reads the numbers of a packed reply; the first is the time.
func (a *arguments) unpack(want int, driven bool) error {
	packed := ""
	if len(a.reply) > 0 {
		packed = a.reply[0].Text
	}
	if len(packed) != 8*want {
		return redisconn.Malformed("it is no text of %d numbers", want)
	}
	a.numbers = a.numbers[:0]
	for ; packed != ""; packed = packed[8:] {
		a.numbers = append(a.numbers, redisconn.Value{Int: word(packed)})
	}
	if driven {
		a.numbers[0].Int = a.sent
	} else if err := integers(a.numbers); err != nil {
		return err
	}
	return timely(a.numbers[0].Int, driven)
}

// word is the number at the beginning of a packed reply.
func word(packed string) int64 {
	var b [8]byte
	copy(b[:], packed)
	return int64(binary.LittleEndian.Uint64(b[:]))
}

// readPacked takes the reply of the batch step of a packedKind apart: the time, then for each request one number for
// each value of its state, and last the granted times of the requests with other times than 1.
func (a *arguments) readPacked(chunk []entry, multi int, driven bool) (again []entry, err error) {
	several := 1 + width(a.kinds)*len(chunk)
	if err := a.unpack(several+multi, driven); err != nil {
		return nil, err
	}
	if len(a.reply) > 1 {
		return nil, redisconn.Malformed("%d elements are too many", len(a.reply)-1)
	}
	now := a.numbers[0].Int
	again = chunk[:0]
	for i := range chunk {
		e := chunk[i]
		ahead := a.numbers[1+i].Int
		if ahead == otherState {
			again = append(again, e)
			continue
		}
		c := callOf(e.Request)
		switch {
		case ahead < 0:
			ahead = -1 - ahead
		case i < multi:
			c.granted = a.numbers[several+i].Int
		default:
			c.granted = 1
		}
		c.at = now
		if e.Err = c.inRange(driven); e.Err == nil {
			state := append(a.reply[:0], redisconn.Value{Int: now + ahead})
			if several > 1+len(chunk) {
				state = append(state, a.numbers[1+len(chunk)+i])
			}
			c.readStates(a.kinds, state)
			e.Granted = c.granted
		}
	}
	return again, nil
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
	rest, texts := a.numbers[1:], a.reply[1:]
	again = chunk[:0]
	for i := range chunk {
		e, c := chunk[i], callOf(chunk[i].Request)
		c.granted, c.at = rest[0].Int, a.numbers[0].Int
		switch {
		case c.granted == failed:
			e.Err = explain(&redisconn.ServerError{Text: texts[0].Text}, e.Claims)
			texts = texts[1:]
		case c.granted == otherPeriod:
			again = append(again, e)
		default:
			c.readStates(a.kinds, rest[1:])
			e.Granted = c.granted
		}
		rest = rest[1+width(a.kinds):]
	}
	return again, nil
}

// checkBatch returns an error if a batch's reply does not have the shape of one.
func (a *arguments) checkBatch(chunk []entry, driven bool) error {
	each := 1 + width(a.kinds)
	if err := a.unpack(1+each*len(chunk), driven); err != nil {
		return err
	}
	texts := 0
	for i := range chunk {
		switch n := a.numbers[1+each*i].Int; {
		case n == failed:
			texts++
		case n != otherPeriod && (n < 0 || n > chunk[i].Times):
			return redisconn.Malformed("%d of %d requests are granted", n, chunk[i].Times)
		}
	}
	if len(a.reply) != 1+texts {
		return redisconn.Malformed("it has %d elements, not %d", len(a.reply), 1+texts)
	}
	for i := range a.reply {
		if !a.reply[i].IsText {
			return redisconn.Malformed("element %d is no text", i+1)
		}
	}
	return nil
}
