package memstore_test

import (
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func TestEveryAlgorithmHasAKind(t *testing.T) {
	for a := weir.Algorithm(1); a.Words() != nil; a++ {
		if !memstore.HasKind(a) {
			t.Errorf("%s has no row in memstore/kinds.go", a)
		}
	}
}
