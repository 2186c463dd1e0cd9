package gate_test

import (
	"net/netip"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// compiled are the rules of a text.
func compiled(t testing.TB, text string) *rules.Set {
	t.Helper()
	file, err := rules.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func open(t testing.TB, store weir.Store, text string, opts ...gate.Option) *gate.Gate {
	t.Helper()
	g, err := gate.New(store, compiled(t, text), append([]gate.Option{gate.WithLocal(memstore.New())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func from(address string) *rules.Request {
	return &rules.Request{Method: "GET", Path: "/", Client: netip.MustParseAddr(address)}
}

func TestTheRefusedAreChargedNowhere(t *testing.T) {
	g := open(t, memstore.New(), `
rules:
  - {name: site, limit: fixed_window 5/1h}
  - {name: ip, key: [client.ip], limit: fixed_window 2/1h}
`)
	var v gate.Verdict
	for i, want := range []gate.Outcome{gate.Passed, gate.Passed, gate.Refused, gate.Refused} {
		if err := g.Decide(t.Context(), from("192.0.2.1"), gate.Once, &v); err != nil || v.Outcome != want {
			t.Fatalf("request %d: %v %v, want %v", i, v.Outcome, err, want)
		}
	}
	if v.Rule.Name() != "ip" || v.Reason != gate.LimitExceeded || v.At(0).Decision.Remaining != 3 {
		t.Errorf("decided by %v for %v, the site has %d left", v.Rule.Name(), v.Reason, v.At(0).Decision.Remaining)
	}
	if err := g.Decide(t.Context(), from("192.0.2.2"), gate.Once, &v); err != nil || v.Outcome != gate.Passed {
		t.Errorf("another address: %v %v", v.Outcome, err)
	}
}
