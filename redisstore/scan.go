package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
)

// A scanner is a Conn that lists keys.
type scanner interface {
	Scan(ctx context.Context, cursor, match string, look int64) (keys []string, next string, err error)
}

const (
	// scanned is the number of keys that Redis looks at in one call, which takes it some 0.1 ms.
	scanned = 500
	// scanTimeout is longer than the timeout of decisions: no request waits for a scan.
	scanTimeout = time.Second
)

// Scan looks at some of the keys in Redis, and returns claims, for Reset, of the keys of limits with the names, of any
// algorithm. It begins at the cursor of the call before, "" at first; next is "" after the last key. A key
// that exists during the whole scan is found, perhaps more than once; a key that is created meanwhile may be found.
func (s *Store) Scan(ctx context.Context, cursor string, names ...string) (
	claims []weir.Claim, next string, err error) {
	list, able := s.conn.(scanner)
	if !able {
		return nil, "", errors.New("weir: this connection to Redis lists no keys; make the store with Open")
	}
	ctx, cancel := context.WithTimeout(ctx, max(s.bound.Timeout, scanTimeout))
	defer cancel()
	keys, next, err := list.Scan(ctx, cursor, literal.Replace(s.config.prefix+common(names))+"*", scanned)
	if err != nil {
		return nil, "", explain(err, nil)
	}
	for _, key := range keys {
		if claim, ok := s.claimOf(key); ok && slices.Contains(names, claim.Limit.Name()) {
			claims = append(claims, claim)
		}
	}
	return claims, next, nil
}

// literal escapes what SCAN's patterns give a meaning.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// common is the beginning that all names share.
func common(names []string) string {
	prefix := names[0]
	for _, name := range names {
		for !strings.HasPrefix(name, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return prefix
}

// claimOf is the claim of the state under a key: the reverse of key.
func (s *Store) claimOf(key string) (claim weir.Claim, ok bool) {
	rest, ours := strings.CutPrefix(key, s.config.prefix)
	at := strings.IndexByte(rest, ':') // names have none
	if !ours || at < 1 || len(rest) < at+3 {
		return claim, false
	}
	claim.Limit, claim.Key = anyLimit(rest[:at], rest[at:at+2]), rest[at+3:]
	if text, wrapped := strings.CutPrefix(rest[at+2:], ":{"); wrapped {
		claim.Key = strings.TrimSuffix(text, "}")
	}
	return claim, claim.Limit != nil && s.key(&claim) == key
}

// anyLimit is a limit with the name and the algorithm of a mark: its numbers are not a part of keys. It is nil if
// no algorithm has the mark.
func anyLimit(name, mark string) *weir.Limit {
	for a := range algorithms {
		if algorithms[a].mark != mark {
			continue
		}
		spec, err := weir.ParseLimit(weir.Algorithm(a).Example())
		if err != nil {
			return nil
		}
		limit, err := weir.NewLimit(name, spec)
		if err != nil {
			return nil
		}
		return limit
	}
	return nil
}
