package ruleset_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/ruleset"
	"pgregory.net/rapid"
)

// A deed is what a layer does, and how long nothing happens then.
type deed struct {
	layer int
	limit string // the limit of the layer's rule; "": see what
	what  string // good, empty, mistake, unreadable
	pause time.Duration
}

func deeds(t *rapid.T, layers int) []deed {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) deed {
		return deed{
			layer: rapid.IntRange(0, layers-1).Draw(t, "layer"),
			limit: fmt.Sprint(rapid.IntRange(1, 9).Draw(t, "limit"), "/1s"),
			what:  rapid.SampledFrom([]string{"good", "good", "good", "empty", "mistake", "unreadable"}).Draw(t, "what"),
			pause: time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 4, 6, 30, 60, 300}).Draw(t, "pause")) * time.Millisecond,
		}
	}), 1, 60).Draw(t, "deeds")
}

// updates is what the layer sends. Layer i has the rule "ri", and one called "all" that all
// layers have.
func (d deed) updates() ruleset.Update {
	switch d.what {
	case "good":
		return updateOf(fmt.Sprintf("r%d %s; all %s", d.layer, d.limit, d.limit))
	case "empty":
		return updateOf("")
	case "mistake":
		return ruleset.Update{Err: errors.New("mistake " + d.limit), Revision: d.limit}
	}
	return ruleset.Update{Err: errors.New("unreadable " + d.limit)}
}

// After updates in any order and pace each layer's last good content is in force.
func TestLastGoodUpdateOfEachSourceIsInForce(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		layers := rapid.IntRange(1, 3).Draw(r, "layers")
		slow := time.Duration(rapid.SampledFrom([]int{0, 0, 3, 20, 500}).Draw(r, "slow")) * time.Millisecond
		list := deeds(r, layers)
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, layers, nil)
			defer h.end()
			h.slow = slow
			last := make([]string, layers)
			for i := range layers {
				h.send(i, deed{layer: i, what: "good", limit: "7/1s"}.updates())
				last[i] = "7/1s"
			}
			for _, d := range list {
				h.send(d.layer, d.updates())
				if d.what == "good" {
					last[d.layer] = d.limit
				}
				time.Sleep(d.pause)
			}
			time.Sleep(5 * time.Minute)
			want := []string{"r0 " + last[0], "all " + last[layers-1]}
			for i := 1; i < layers; i++ {
				want = append(want, fmt.Sprintf("r%d %s", i, last[i]))
			}
			h.expect(strings.Join(want, "; "))
			if h.swapped > len(list)+layers {
				t.Errorf("%d swaps after %d news", h.swapped, len(list)+layers)
			}
		})
		if t.Failed() {
			r.Fatalf("deeds %+v", list)
		}
	})
}
