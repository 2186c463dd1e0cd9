package redisstore_test

import (
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/redisstore"
)

func TestEveryAlgorithmHasAKind(t *testing.T) {
	for a := weir.Algorithm(1); a.Words() != nil; a++ {
		if !redisstore.HasKind(a) {
			t.Errorf("%s has no row in redisstore/kinds.go", a)
		}
	}
}
