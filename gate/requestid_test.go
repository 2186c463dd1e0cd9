package gate_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
)

const traced = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestObserversReadTheRequestID(t *testing.T) {
	var seen string
	g := open(t, memstore.New(), `rules: [{name: ip, key: [client.ip], limit: 1/1h}]`,
		gate.WithObserver(func(v *gate.Verdict) { seen = v.RequestID() }))
	for _, c := range []struct{ id, parent, want string }{
		{"", "", ""},
		{"req-7", "", "req-7"},
		{"req-7", traced, "req-7"},
		{"", traced, "4bf92f3577b34da6a3ce929d0e0e4736"},
		{strings.Repeat("a", 129), traced, "4bf92f3577b34da6a3ce929d0e0e4736"},
		{strings.Repeat("a", 128), "", strings.Repeat("a", 128)},
		{"two words", "", ""},
		{"\x1b[31mred", "", ""},
		{"", "ff" + traced[2:], ""},
		{"", strings.Replace(traced, "4bf92f3577b34da6a3ce929d0e0e4736", strings.Repeat("0", 32), 1), ""},
		{"", strings.Replace(traced, "4bf9", "4BF9", 1), ""},
		{"", traced[:54], ""},
		{"", strings.ReplaceAll(traced, "-", "_"), ""},
	} {
		r := from("192.0.2.1")
		r.Attributes = said{"X-Request-Id": c.id, "Traceparent": c.parent}
		var v, batched gate.Verdict
		if err := g.Decide(t.Context(), r, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
		if seen != c.want {
			t.Errorf("X-Request-Id %q, traceparent %q: the observer read %q, want %q", c.id, c.parent, seen, c.want)
		}
		if v.RequestID() != "" {
			t.Errorf("the verdict kept the attributes of the request")
		}
		seen = "none"
		g.DecideBatch(t.Context(), []gate.Question{{Request: r, Ask: gate.Once, Verdict: &batched}})
		if seen != c.want {
			t.Errorf("in a batch the observer read %q, want %q", seen, c.want)
		}
	}
}

func TestADeniedVerdictHasTheClient(t *testing.T) {
	g := open(t, memstore.New(), `
deny: {client.ip: [192.0.2.1]}
rules:
  - {name: ip, key: [client.ip], limit: 1/1h, deny: {client.ip: [192.0.2.2]}}
`)
	for client, want := range map[string]string{"192.0.2.1": "192.0.2.1", "192.0.2.2": "192.0.2.2", "192.0.2.3": "invalid IP"} {
		var v gate.Verdict
		if err := g.Decide(t.Context(), from(client), gate.Once, &v); err != nil {
			t.Fatal(err)
		}
		if got := v.Client.String(); got != want {
			t.Errorf("%s: the client is %s, want %s", client, got, want)
		}
	}
}
