package engine

import (
	"context"
	"slices"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/rules"
)

// resetsWithin is the time of one call of ResetRule, within the timeout of a request by the command.
const resetsWithin = time.Second

// ResetRule deletes the counts of keys of a rule, as Gate.Reset does for a key, and returns their number. In Redis it
// finds as many as it can in a second, and returns the cursor to go on from; "" after the last key. Bans stay.
func (e *Engine) ResetRule(ctx context.Context, rule *rules.Rule, cursor string) (keys int, next string, err error) {
	var names []string
	for _, limit := range rule.Limits() {
		names = append(names, limit.Name())
	}
	if local, ok := e.store.(*memstore.Store); ok {
		if cursor != "" {
			return 0, "", &weir.InputError{Field: "cursor", Given: cursor,
				Allowed: "none: in memory one request resets all keys"}
		}
		return local.ResetNames(names...), "", nil
	}
	if cursor == "" {
		e.stack.local.ResetNames(names...)
	}
	shared := e.store.(*redisstore.Store)
	for end := time.Now().Add(resetsWithin); ; {
		claims, next, err := shared.Scan(ctx, cursor, names...)
		if err != nil {
			return keys, cursor, err
		}
		for some := range slices.Chunk(claims, weir.MaxClaims) {
			if err := e.Counts.Reset(ctx, some); err != nil {
				return keys, cursor, err
			}
			keys += len(some)
		}
		if cursor = next; cursor == "" || time.Now().After(end) {
			return keys, cursor, nil
		}
	}
}
