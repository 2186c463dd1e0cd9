package fair

import (
	"math/rand/v2"
	"testing"

	"github.com/weirproject/weir"
)

// TestPartsMatchAMap adds and removes units of members at random. Their IDs share homes in the table, so that
// searches pass the parts of others, and the parts that are dropped leave gaps.
func TestPartsMatchAMap(t *testing.T) {
	limit := weir.MustLimit("parts", weir.Fair{Of: weir.Concurrency{Limit: 1000, TTL: 1e9}, MaxKeys: 100})
	random := rand.New(rand.NewPCG(5, 6))
	var parts Parts
	want := map[int64]Part{}
	for step := range 200_000 {
		id, n := 1<<40*(1+random.Int64N(120)), 1+random.Int64N(3)
		had, known := want[id]
		switch {
		case step%1000 == 999:
			parts.clear()
			clear(want)
		case random.IntN(2) == 0 && (known || len(want) < 100):
			m := Member{ID: id, Weight: 1 + random.Int64N(5)}
			parts.add(limit, m, n)
			want[id] = Part{had.Units + n, m.Weight}
		case known:
			parts.remove(id, n)
			if want[id] = (Part{had.Units - n, had.Weight}); had.Units <= n {
				delete(want, id)
			}
		}
		if part := parts.part(id); part != want[id] {
			t.Fatalf("step %d: member %d has %v, want %v", step, id, part, want[id])
		}
		if step%100 == 0 {
			checkParts(t, &parts, want)
		}
	}
}

func checkParts(t *testing.T, parts *Parts, want map[int64]Part) {
	t.Helper()
	weights := int64(0)
	for id, part := range want {
		weights += part.Weight
		if parts.part(id) != part {
			t.Fatalf("member %d has %v, want %v", id, parts.part(id), part)
		}
	}
	if parts.members != int64(len(want)) || parts.weights != weights {
		t.Fatalf("%d members of the weight %d, want %d of %d", parts.members, parts.weights, len(want), weights)
	}
	if again, ok := FromNumbers(parts.Numbers()); !ok || again.members != parts.members || again.weights != weights {
		t.Fatalf("the snapshot has %d members of the weight %d, %v", again.members, again.weights, ok)
	}
}
