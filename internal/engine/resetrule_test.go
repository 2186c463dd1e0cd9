package engine

import (
	"errors"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// TestResetInMemoryHasNoCursor: a client that makes one up would reset all keys, and the ledger would not have it.
func TestResetInMemoryHasNoCursor(t *testing.T) {
	set, err := rules.Compile(&rules.File{Rules: []rules.Spec{{Name: "a", Limit: []string{"1/1h"}}}})
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{store: memstore.New()}
	var wrong *weir.InputError
	if _, _, err := e.ResetRule(t.Context(), set.Rules()[0], "x 0"); !errors.As(err, &wrong) || wrong.Field != "cursor" {
		t.Errorf("the error is %v", err)
	}
	if _, next, err := e.ResetRule(t.Context(), set.Rules()[0], ""); next != "" || err != nil {
		t.Errorf("it goes on at %q, %v", next, err)
	}
}
