package redissource

import (
	"testing"
	"time"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/ledger"
)

// TestAReadingAfterAnExceptionsEnd has another revision than one before, although nobody
// changed the ledger: what has one revision is not looked at twice, and the exception would
// stay in force for whoever was told of it when it was.
func TestAReadingAfterAnExceptionsEnd(t *testing.T) {
	book, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(book)
	if _, _, err := l.Except(t.Context(), rules.Exception{Kind: rules.Blocked, Values: []string{"10.0.0.1"}}, time.Hour, 0, ledger.Author{Who: "ann"}); err != nil {
		t.Fatal(err)
	}
	is, err := book.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shelf := newLedgerShelf(new(config))
	read := func(ago time.Duration) law {
		shelf.entries["exception:"+is.Entries[0].Exception.ID] = &leaf{exception: &is.Entries[0]}
		shelf.revision, shelf.now, shelf.read = 1, is.Now.Add(ago), time.Now()
		return shelf.law()
	}
	if before, after := read(0), read(2*time.Hour); before.revision != "1" || after.revision != "1, 1 ended" {
		t.Errorf("%q before, %q after", before.revision, after.revision)
	}
}
