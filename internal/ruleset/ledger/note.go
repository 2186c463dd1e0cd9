package ledger

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
)

// A Key is a key of a store, and the rule that it belongs to.
type Key struct {
	Rule string `json:"rule"`
	Key  string `json:"key"` // as the rule's AppendKey makes it
}

// keyName is the prefix of names of keys in a Backend, which no rule's name has. The history of a
// rule's keys is not stored under the rule's own name, because a rollback to a reset would delete
// the rule.
const keyName = "key:"

func isKey(name string) bool { return strings.HasPrefix(name, keyName) }

// Note records an operation on a key, such as a reset, in the history. It changes no entry, and
// sources do not report it. It returns the revision of the record.
func (l *Ledger) Note(ctx context.Context, what string, key Key, by Author) (revision int64, err error) {
	if err := by.check(); err != nil {
		return 0, err
	}
	if len(key.Key) > bounds.PlainKey {
		return 0, &weir.InputError{Field: "bytes of key", Given: len(key.Key),
			Allowed: fmt.Sprintf("at most %d: what is longer is hashed", bounds.PlainKey)}
	}
	c := changeOf(keyName+key.Rule, what, by, "", false)
	c.Deleted, c.Key = true, &key
	return l.backend.Commit(ctx, c, 0)
}
