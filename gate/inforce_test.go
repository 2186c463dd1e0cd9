package gate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
)

// TestEditWhileARequestIsUnderWay: a rule gets a longer window while a request is under way. The end of that request,
// whatever it settles or gives back, lets no more pass in the longer window than its limit.
func TestEditWhileARequestIsUnderWay(t *testing.T) {
	ends := map[string]func(g *gate.Gate, receipt gate.Receipt) error{
		"its response does not count": func(g *gate.Gate, receipt gate.Receipt) error {
			_, err := g.Respond(t.Context(), receipt, gate.Response{Status: 200})
			return err
		},
		"it cost nothing":        func(g *gate.Gate, r gate.Receipt) error { return g.Settle(t.Context(), r, 0) },
		"it cost what was asked": func(g *gate.Gate, r gate.Receipt) error { return g.Settle(t.Context(), r, 1) },
		"it cost more":           func(g *gate.Gate, r gate.Receipt) error { return g.Settle(t.Context(), r, 2) },
	}
	for _, algorithm := range []string{"sliding_log", "sliding_counter", "fixed_window", "fixed_window epoch"} {
		for end, settle := range ends {
			t.Run(algorithm+"/"+end, func(t *testing.T) {
				now := time.Date(2027, 5, 3, 7, 1, 13, 0, time.UTC).UnixMicro()
				store := memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(now) }))
				g := open(t, store, edited(algorithm, "5/10s"))
				_, slow := passes(t, g)
				if err := g.Swap(compiled(t, edited(algorithm, "5/1h"))); err != nil {
					t.Fatal(err)
				}
				counted := 0
				for range 8 {
					now += 20_000_000
					if ok, receipt := passes(t, g); ok {
						counted++
						_, err := g.Respond(t.Context(), receipt, gate.Response{Status: 401})
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := settle(g, slow); err != nil {
					t.Fatal(err)
				}
				for range 8 {
					now += 1_000_000
					if ok, _ := passes(t, g); ok {
						counted++
					}
				}
				want := 4
				if end == "its response does not count" || end == "it cost nothing" {
					want = 5
				}
				if counted != want {
					t.Errorf("%d beside the first pass in an hour, want %d", counted, want)
				}
			})
		}
	}
}

// edited is a rule of an algorithm, which may be followed by the anchor.
func edited(algorithm, limit string) string {
	var name, anchor string
	fmt.Sscan(algorithm, &name, &anchor)
	return fmt.Sprintf("rules:\n  - {name: login, key: [user], count_if: {status: [401]}, limit: %s %s %s}\n", name,
		limit, anchor)
}

func passes(t *testing.T, g *gate.Gate) (bool, gate.Receipt) {
	t.Helper()
	r, v := from("192.0.2.1"), new(gate.Verdict)
	r.User = "ann"
	if err := g.Decide(t.Context(), r, gate.Once, v); err != nil {
		t.Fatal(err)
	}
	return v.Outcome == gate.Passed, v.Receipt()
}
