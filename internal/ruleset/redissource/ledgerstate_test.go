package redissource

import (
	"testing"
	"time"

	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/rules"
)

// TestAReadingAfterAnExceptionsEnd has another revision than one before, although nobody
// changed the ledger: what has one revision is not fetched at twice, and the exception would
// stay in force for whoever was announcedBefore of it when it was.
func TestAReadingAfterAnExceptionsEnd(t *testing.T) {
	backend, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(backend)
	if _, _, err := l.Except(t.Context(), rules.Exception{Kind: rules.Blocked, Values: []string{"10.0.0.1"}}, time.Hour, 0, ledger.Author{Who: "ann"}); err != nil {
		t.Fatal(err)
	}
	is, err := backend.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	state := newLedgerState(new(config))
	read := func(ago time.Duration) contents {
		state.entries["exception:"+is.Entries[0].Exception.ID] = &ledgerEntry{exception: &is.Entries[0]}
		state.revision, state.now, state.read = 1, is.Now.Add(ago), time.Now()
		return state.contents()
	}
	if before, after := read(0), read(2*time.Hour); before.revision != "1" || after.revision != "1, 1 ended" {
		t.Errorf("%q before, %q after", before.revision, after.revision)
	}
}
