package gate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// learning is a rule that learns, by key or by key and model.
func learning(by string) string {
	return "rules: [{name: tokens, key: [header.X-Team], cost: {from: json.max_tokens or 1000 + 0.25 * bytes(json.prompt), " +
		"max: 4000, settle: json.usage.total_tokens, learn: " + by + "}, limit: [fixed_window 1000000000/1d, fixed_window 2000000000/7d]}]"
}

// asking is a request of a team with a body.
type asking struct {
	team string
	body *rules.JSON
}

func (a *asking) Header(string) string     { return a.team }
func (a *asking) Query(string) string      { return "" }
func (a *asking) Cookie(string) string     { return "" }
func (a *asking) Descriptor(string) string { return "" }
func (a *asking) JSON() *rules.JSON        { return a.body }

// A pupil sends requests to a gate that learns.
type pupil struct {
	*testing.T
	*gate.Gate
}

// estimate is the cost of a request, without a charge.
func (p pupil) estimate(team, body string) int64 {
	p.Helper()
	return p.send(team, body, gate.Ask{}, -1)
}

// settle sends a request and settles it; it returns the estimate.
func (p pupil) settle(team, body string, actual int64) int64 {
	p.Helper()
	return p.send(team, body, gate.Once, actual)
}

func (p pupil) send(team, body string, ask gate.Ask, actual int64) int64 {
	p.Helper()
	r := &rules.Request{Attributes: &asking{team, p.Rules().ReadJSON([]byte(body))}}
	var v gate.Verdict
	if err := p.Decide(p.Context(), r, ask, &v); err != nil {
		p.Fatal(err)
	}
	if actual >= 0 {
		if err := p.Settle(p.Context(), v.Receipt(), actual); err != nil {
			p.Fatal(err)
		}
	}
	return v.At(0).Claim.Cost
}

func newPupil(t *testing.T, by string) pupil {
	return pupil{t, gatetest.New(t, memstore.New(), learning(by))}
}

const asks2000 = `{"max_tokens": 2000, "prompt": ""}`

// TestLearnedEstimateFallsBackAndIsBounded: to what the request states until enough is settled, and never above that or
// below the prompt. Without max_tokens it is bounded by max alone.
func TestLearnedEstimateFallsBackAndIsBounded(t *testing.T) {
	p := newPupil(t, "key")
	for i := range 16 {
		if got := p.settle("a", asks2000, 100); got != 2000 {
			t.Fatalf("the estimate is %d after %d", got, i)
		}
	}
	for body, want := range map[string]int64{
		asks2000:             100,
		`{"max_tokens": 50}`: 50,
		`{}`:                 100,
		`{"max_tokens": 2000, "prompt": "` + strings.Repeat("word", 500) + `"}`:  600,
		`{"max_tokens": 2000, "prompt": "` + strings.Repeat("word", 5000) + `"}`: 4000,
	} {
		if got := p.estimate("a", body); got != want {
			t.Errorf("%.60s: the estimate is %d, want %d", body, got, want)
		}
	}
	for range 100 {
		p.settle("a", `{}`, 9000)
	}
	for body, want := range map[string]int64{asks2000: 2000, `{}`: 4000} {
		if got := p.estimate("a", body); got != want {
			t.Errorf("%s: the estimate is %d of 9000, want %d", body, got, want)
		}
	}
}

// TestLearnedEstimateConverges: few requests cost more than estimated, and hardly ever eight together, while the units
// that are tied up are a fraction of what is stated.
func TestLearnedEstimateConverges(t *testing.T) {
	for name, cost := range map[string]func(*rand.Rand) float64{
		"constant":    func(*rand.Rand) float64 { return 300 },
		"exponential": func(r *rand.Rand) float64 { return 200 * r.ExpFloat64() },
		"log-normal":  func(r *rand.Rand) float64 { return math.Exp(5 + r.NormFloat64()) },
		"Pareto":      func(r *rand.Rand) float64 { return 20 / math.Pow(1-r.Float64(), 1/1.2) },
	} {
		p, random := newPupil(t, "key"), rand.New(rand.NewPCG(1, 2))
		var above, togetherAbove, estimated, missing int64
		const all, together = 8000, 8
		for i := range int64(all) {
			actual := int64(min(2000, 1+cost(random)))
			estimate := p.settle("a", asks2000, actual)
			if estimate < actual {
				above++
			}
			estimated, missing = estimated+estimate, missing+actual-estimate
			if i%together == together-1 {
				if missing > 0 {
					togetherAbove++
				}
				missing = 0
			}
		}
		if above > all*7/100 || togetherAbove > all/together/100 || estimated > all*850 {
			t.Errorf("%s: %d of %d are above the estimate, %d sums of %d, and the mean estimate is %d", name, above, all,
				togetherAbove, together, estimated/all)
		}
	}
}

// TestLearnedEstimateAdapts: to higher costs within four, to lower ones within 150.
func TestLearnedEstimateAdapts(t *testing.T) {
	p := newPupil(t, "key")
	costs := func(n int, actual int64) {
		for range n {
			p.settle("a", asks2000, actual)
		}
	}
	costs(100, 100)
	costs(4, 500)
	if got := p.estimate("a", asks2000); got < 300 {
		t.Errorf("after 4 of 500 the estimate is %d", got)
	}
	costs(10, 500)
	if got := p.estimate("a", asks2000); got < 500 {
		t.Errorf("after 14 of 500 the estimate is %d", got)
	}
	costs(200, 500)
	if got := p.estimate("a", asks2000); got < 500 || got > 540 {
		t.Errorf("after 214 of 500 the estimate is %d", got)
	}
	costs(150, 100)
	if got := p.estimate("a", asks2000); got < 100 || got > 200 {
		t.Errorf("after 150 of 100 the estimate is %d", got)
	}
}

// TestLearnedEstimateOfOneKeyLeavesOthers, and one of a model leaves other models. Errors, which cost nothing, teach
// nothing.
func TestLearnedEstimateOfOneKeyLeavesOthers(t *testing.T) {
	body := func(model string) string { return fmt.Sprintf(`{"model": %q, "max_tokens": 2000}`, model) }
	for by, others := range map[string]int64{"key": 300, "json.model": 2000} {
		p := newPupil(t, by)
		for range 50 {
			p.settle("a", body("m"), 300)
			p.settle("b", body("m"), 1)
			p.settle("a", body("m"), 0)
		}
		for _, test := range []struct {
			team, model string
			want        int64
		}{{"a", "m", 300}, {"b", "m", 1}, {"c", "m", 2000}, {"a", "other", others}} {
			if got := p.estimate(test.team, body(test.model)); got != test.want {
				t.Errorf("by %s: the estimate of %+v is %d", by, test, got)
			}
		}
	}
}

// TestLearnedEstimatesAreBounded: many keys displace those that were not settled for long, which are as new ones.
func TestLearnedEstimatesAreBounded(t *testing.T) {
	p := newPupil(t, "key")
	for range 20 {
		p.settle("old", asks2000, 100)
	}
	for i := range 200_000 {
		p.settle(fmt.Sprint("key ", i), asks2000, 100)
		if i%1000 == 0 {
			p.settle("busy", asks2000, 100)
		}
	}
	if got := p.estimate("old", asks2000); got != 2000 {
		t.Errorf("the estimate of a key that was displaced is %d", got)
	}
	if got := p.estimate("busy", asks2000); got != 100 {
		t.Errorf("the estimate of a key that is busy is %d", got)
	}
}

// TestLearnedEstimateIsExplained, and a shadow rule learns too.
func TestLearnedEstimateIsExplained(t *testing.T) {
	for _, mode := range []string{"enforce", "shadow"} {
		p := pupil{t, gatetest.New(t, memstore.New(), strings.Replace(learning("key"), "key:", "mode: "+mode+", key:", 1))}
		for range 20 {
			p.settle("a", asks2000, 100)
		}
		r := &rules.Request{Attributes: &asking{"a", p.Rules().ReadJSON([]byte(asks2000))}}
		var v gate.Verdict
		if err := p.Decide(t.Context(), r, gate.Ask{}, &v); err != nil {
			t.Fatal(err)
		}
		if got := v.Explain(nil, r).Rules[0]; got.Learned != 20 || got.Limits[0].Cost != 100 {
			t.Errorf("%s: %+v", mode, got)
		}
	}
}
