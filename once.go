package weir

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	shortestOnce = time.Second
	maxOnce      = 24 * time.Hour

	onceName = "weir.once"
)

// Once is the claim that makes a decision of claims count once: decide it with them, as the last. A granted decision
// keeps the id, with its charges, for this long. A later decision with the id is refused without a charge, and
// RetryAfter of this claim is not 0: it is a repetition of the granted one. If RetryAfter is 0, other claims have
// refused. A Refund of all claims, this one too, frees the id.
//
// The id belongs to the keys, limits, members and costs of claims: beside others it is another id. It has 1 to 256
// bytes, and is kept for 1s to 24h. Leases have ids already: claims of leases cannot have such an id.
func Once(claims []Claim, id string, keep time.Duration) (Claim, error) {
	switch {
	case len(id) == 0 || len(id) > MaxLease:
		return Claim{}, invalid("id", strconv.Itoa(len(id))+" bytes", "1 to 256 bytes")
	case keep < shortestOnce || keep > maxOnce:
		return Claim{}, invalid("for", keep, "1s to 24h: how long an id is kept")
	case len(claims) == 0 || len(claims) >= MaxClaims:
		return Claim{}, invalid("claims", len(claims), "1 to "+strconv.Itoa(MaxClaims-1)+" beside an id")
	}
	for i := range claims {
		if l := claims[i].Limit; l == nil || l.algorithm == 0 || l.Leases() {
			return Claim{}, invalid("id", id, "none beside a concurrency limit, whose lease has an id")
		}
	}
	limit, err := onceLimit(keep)
	return Claim{Key: onceKey(claims, id), Limit: limit, Cost: 1, Once: true}, err
}

// lastOnce is the limit that was used last: most programs have one. It changes no result: equal limits are one. A limit
// for each call would be kept by a memory store with each id, at several times its size.
var lastOnce atomic.Pointer[Limit]

// onceLimit is a window of one unit, which begins with the charge: the decision that is granted first.
func onceLimit(keep time.Duration) (*Limit, error) {
	if last := lastOnce.Load(); last != nil && last.period == keep.Microseconds() {
		return last, nil
	}
	limit, err := NewLimit(onceName, FixedWindow{Limit: 1, Window: keep.Truncate(time.Microsecond)})
	if err == nil {
		lastOnce.Store(limit)
	}
	return limit, err
}

// onceKey is a hash of the id and of all that it stands with, behind the first key: in a Redis Cluster both lie in one
// slot, by the same hash tag. A key that is too long for that is left out.
func onceKey(claims []Claim, id string) string {
	text := append(make([]byte, 0, 512), byte(len(claims))) // or an id could be read as one more claim and a shorter id
	for i := range claims {
		c := &claims[i]
		text = appendSized(append(text, byte(c.Limit.algorithm)), c.Limit.name)
		text = binary.AppendVarint(appendSized(text, c.Key), c.Cost)
		if c.Limit.whole != nil {
			text = appendSized(text, c.Member)
		}
	}
	sum := sha256.Sum256(append(text, id...))
	hash, key := " once:"+base64.RawURLEncoding.EncodeToString(sum[:16]), claims[0].Key
	if len(key)+len(hash)+2 > MaxKey {
		return hash
	}
	if _, rest, ok := strings.Cut(key, "{"); ok && strings.IndexByte(rest, '}') > 0 {
		return key + hash
	}
	return "{" + key + "}" + hash
}

func appendSized(text []byte, value string) []byte {
	return append(binary.AppendUvarint(text, uint64(len(value))), value...)
}

// AllowOnce is AllowN for a request that may arrive again, such as the retry of a client that got no answer: once it is
// granted, a call with the same id, key and n is Allowed and Repeated without a charge, for as long as keep says. A
// refused request keeps no id. See [Once] for ids, and for decisions that are to be given back. A
// new id costs, a known one is free: do not take them from clients without a bound.
func (l *Limiter) AllowOnce(ctx context.Context, key string, n int64, id string, keep time.Duration) (Answer, error) {
	c := l.newCall()
	c.fill(key, costs{n}, "")
	once, err := Once(c.claims, id, keep)
	if err != nil {
		return Answer{}, err
	}
	decisions := make([]Decision, len(c.claims)+1)
	granted, err := l.charge(ctx, append(c.claims, once), 1, decisions)
	if err != nil {
		return Answer{}, err
	}
	c.decisions = decisions[:len(c.claims)]
	var answer Answer
	c.answer(&answer)
	answer.Repeated = granted == 0 && decisions[len(c.claims)].RetryAfter != 0
	answer.Allowed = granted > 0 || answer.Repeated
	return answer, nil
}
