package ledger

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// A Key is what a store counts under, and the rule that it is counted for.
type Key struct {
	Rule string `json:"rule"`
	Key  string `json:"key"` // as the rule's AppendKey makes it
}

// keyName is what names of keys begin with in a Backend. No rule's name does. The history of a
// rule's keys must not lie under the rule's own name: going back to a reset would delete it.
const keyName = "key:"

func isKey(name string) bool { return strings.HasPrefix(name, keyName) }

// Note writes into the history what somebody does to a key, such as to reset it. The ledger
// holds nothing more for it, and no source tells of it: no rule is another. It returns the
// revision under which it stands there.
func (l *Ledger) Note(ctx context.Context, what string, key Key, by Author) (revision int64, err error) {
	if err := by.check(); err != nil {
		return 0, err
	}
	if len(key.Key) > rules.MaxPlainKey {
		return 0, &weir.InputError{Field: "bytes of key", Given: len(key.Key), Allowed: fmt.Sprintf("at most %d: what is longer is hashed", rules.MaxPlainKey)}
	}
	return l.backend.Commit(ctx, Draft{Name: keyName + key.Rule, by: by, payload: payload{Deleted: true, What: what, Key: &key}})
}
