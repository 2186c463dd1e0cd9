// Package gatetest makes rule sets and gates for tests.
package gatetest

import (
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// Rules compiles the text of a rule file.
func Rules(t testing.TB, text string) *rules.Set {
	t.Helper()
	set, err := rules.Load("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// New makes a gate of the rules of a text, with an embedded store of its own for rules that use one.
func New(t testing.TB, store weir.Store, text string, opts ...gate.Option) *gate.Gate {
	t.Helper()
	return Of(t, store, Rules(t, text), opts...)
}

// Of is New with rules that are compiled.
func Of(t testing.TB, store weir.Store, set *rules.Set, opts ...gate.Option) *gate.Gate {
	t.Helper()
	local := memstore.New()
	t.Cleanup(func() { local.Close() })
	g, err := gate.New(store, set, append([]gate.Option{gate.WithLocal(local)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}
