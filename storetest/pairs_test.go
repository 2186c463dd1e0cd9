package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/rules"
)

// TestPairsOfFeatures plays each feature of rules and stores beside each other one, on both stores, and compares every
// verdict with a gate that is written down slowly, over models. The table is drawn by a fixed seed.
func TestPairsOfFeatures(t *testing.T) {
	type opener func(testing.TB, *pair) weir.Store
	for name, open := range map[string]opener{"memory": pairInMemory, "Redis": pairsOnRedis(t)} {
		t.Run(name, func(t *testing.T) {
			for i := range features {
				for j := range features[:i+1] {
					p := newPair(i, j)
					p.full = p.full && name == "memory"
					p.play(t, open(t, p))
				}
			}
		})
	}
}

func pairInMemory(t testing.TB, p *pair) weir.Store {
	ceiling := memstore.DefaultMaxKeys
	if p.full {
		ceiling = 1
	}
	store := memstore.New(memstore.WithClock(p.clock.read), memstore.WithMaxKeys(ceiling))
	forever := []weir.Claim{{Key: "first", Cost: 1,
		Limit: weir.MustLimit("forever", weir.FixedWindow{Limit: 1, Window: 1e6 * time.Hour})}}
	if err := store.Charge(context.Background(), forever, nil); err != nil {
		t.Fatal(err)
	}
	return store
}

func pairsOnRedis(t testing.TB) func(testing.TB, *pair) weir.Store {
	url := redistest.Start(t).URL()
	var now func() weir.Instant
	store, err := redisstore.Open(context.Background(), url, redisstore.WithTimeout(time.Minute),
		redisstore.WithClock(func() weir.Instant { return now() }))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, store)
	return func(_ testing.TB, p *pair) weir.Store {
		now = p.clock.read
		return store
	}
}

// pairSteps is the number of steps of a cell of the table.
const pairSteps = 24

// A pair is a cell of the table: two rules, the first with two features, and how they are used.
type pair struct {
	name    string
	seed    uint64
	clock   clock
	one     rules.Spec
	steps   []string // drawn from
	moves   []time.Duration
	back    bool  // some moves go back
	most    int64 // times of a request
	costs   []int64
	ids     []string // of requests
	tenants []string // members of a fair limit
	full    bool
	edited  string // the first limit of the rule after an edit
	model   *slowGate
	open    []*unsettled
	waits   int64 // the longest retry-after of the last step, µs

	isEdited bool
}

// features change a pair.
var features = []struct {
	name string
	set  func(*pair)
}{
	{"fixed window", limited("fixed_window 4/10s", "fixed_window 6/7s")},
	{"epoch window", limited("fixed_window 4/10s epoch", "fixed_window 3/13s epoch")},
	{"calendar", limited("calendar 5/minute", "calendar 3/hour")},
	{"log", limited("sliding_log 4/10s", "sliding_log 6/7s")},
	{"counter", limited("sliding_counter 4/10s slices 5", "sliding_counter 6/12s slices 3")},
	{"bucket", limited("4/10s", "4/6s")},
	{"step bucket", limited("4/10s step", "3/7s step")},
	{"leaky queue", limited("leaky_queue 1/2s queue 3", "leaky_queue 1/3s queue 2")},
	{"concurrency", limited("concurrency 3 ttl 10s", "concurrency 2 ttl 10s")},
	{"count_if", func(p *pair) {
		p.one.CountIf = rules.CountIf{Status: []string{"401"}}
		p.steps = append(p.steps, "respond", "respond", "respond")
	}},
	{"settle", func(p *pair) { p.steps = append(p.steps, "settle", "settle", "settle") }},
	{"refund", func(p *pair) { p.steps = append(p.steps, "cancel", "cancel", "cancel") }},
	{"ban", func(p *pair) {
		p.one.Ban = rules.Ban{After: "3 refusals within 20s", For: "15s", Then: []string{"40s"}}
		p.steps = append(p.steps, "ask", "ask", "ask", "ask")
	}},
	{"shadow", func(p *pair) { p.one.Mode = rules.Shadow }},
	{"percent", func(p *pair) { p.one.EnforcePercent = new(int); *p.one.EnforcePercent = 50 }},
	{"candidate", func(p *pair) { p.one.Candidate = rules.Candidate{Limit: []string{"sliding_log 3/10s"}} }},
	{"override", func(p *pair) {
		p.one.Overrides = []rules.Override{{Key: []string{p.name + "-ann"}, Limit: []string{"fixed_window 7/9s"}}}
	}},
	{"reserve", func(p *pair) {
		p.one.Reserve = rules.Reserve{By: "user", Classes: map[string]string{p.name + "-ann": "0%", "others": "40%"}}
	}},
	{"fair", func(p *pair) {
		p.one.Fair = rules.Fair{By: []string{"header.Tenant"}, Weights: map[string]int64{"gold": 3}, MaxKeys: 2}
		p.tenants = []string{"gold", "iron", "iron", "tin", ""}
		if len(p.one.Limit) == 0 { // a log has no members
			limited("fixed_window 6/10s", "fixed_window 8/7s")(p)
		}
		if p.one.Candidate.Limit != nil {
			p.one.Candidate.Limit = []string{"calendar 3/minute"}
		}
	}},
	{"charge full", func(p *pair) { p.one.Charge = rules.ChargeFull }},
	{"full store", func(p *pair) { p.full = true }},
	{"clock steps back", func(p *pair) {
		p.moves = append(p.moves, -1, -3*time.Second, -25*time.Second)
		p.back = true
	}},
	{"several at once", func(p *pair) { p.most = 5 }},
	{"costs", func(p *pair) { p.costs = []int64{0, 1, 2, 3, 5} }},
	{"edits", func(p *pair) { p.steps = append(p.steps, "edit", "edit") }},
	{"twins", func(p *pair) { p.steps = append(p.steps, "together", "together", "together") }},
	{"reset", func(p *pair) { p.steps = append(p.steps, "reset") }},
	{"once", func(p *pair) {
		p.one.Once = rules.Once{By: "header.Id", For: "12s", Repeats: 1}
		p.ids = []string{"", "a", "a", "b"}
	}},
}

func limited(limit, edited string) func(*pair) {
	return func(p *pair) {
		if !slices.Contains(p.one.Limit, limit) {
			p.one.Limit = append(p.one.Limit, limit)
			p.edited = edited
		}
	}
}

func newPair(i, j int) *pair {
	p := &pair{name: fmt.Sprintf("%d-%d", i, j), seed: uint64(i*100 + j), most: 1, costs: []int64{1},
		steps: []string{"ask", "ask", "ask", "ask", "ask", "peek", "release"}, edited: "sliding_log 6/7s",
		moves: []time.Duration{0, 0, 0, 0, 1000, 500 * time.Millisecond, 2 * time.Second, 9 * time.Second, 16 * time.Second}}
	p.one = rules.Spec{Name: "one-" + p.name, Key: []string{"user"}, OnStoreError: rules.RefuseAll}
	features[j].set(p)
	if i != j {
		features[i].set(p)
	}
	if len(p.one.Limit) == 0 {
		p.one.Limit = []string{"sliding_log 4/10s"}
	}
	if p.full { // it keeps no ids
		p.one.Once, p.ids = rules.Once{}, nil
	}
	if p.one.CountIf.Status != nil && p.one.Ban.After != "" {
		p.one.Ban.After = "3 counted within 20s"
	}
	if slices.ContainsFunc(p.one.Limit, func(text string) bool { return text[:3] == "con" }) {
		p.most = 1
	}
	p.clock.set(epoch)
	return p
}

// rules are the pair's, as they are or edited.
func (p *pair) rules(edited bool) (*rules.Set, error) {
	one := p.one
	if edited {
		one.Limit = slices.Clone(one.Limit)
		one.Limit[len(one.Limit)-1] = p.edited
	}
	two := rules.Spec{Name: "two-" + p.name, Limit: []string{"fixed_window 9/13s"}, OnStoreError: rules.RefuseAll}
	return rules.Compile(&rules.File{Name: "pair", Rules: []rules.Spec{one, two}})
}

// An unsettled request has passed.
type unsettled struct {
	receipt gate.Receipt
	charges []charge
}

func (p *pair) play(t *testing.T, store weir.Store) {
	set, err := p.rules(false)
	if err != nil {
		return // the features exclude each other
	}
	g, err := gate.New(store, set)
	if err != nil {
		t.Fatal(err)
	}
	p.model = &slowGate{newModel(p.clock.read), set, p.full, p.back}
	d := rand.New(rand.NewPCG(p.seed, 11))
	log := ""
	for i := range pairSteps {
		p.move(d)
		step := p.steps[d.IntN(len(p.steps))]
		log += fmt.Sprintf("\n%d at %d: %s", i, p.clock.now.Load()-epoch, step)
		got, want, err := p.step(g, d, step, i)
		if log += " " + want; got != want || err != nil {
			t.Errorf("%s beside %s, %+v:%s\n  got  %s\n  want %s\n%v", features[p.seed/100].name,
				features[p.seed%100].name, p.one, log, got, want, err)
			return
		}
	}
}

// step does the ith step on the gate and on the model.
func (p *pair) step(g *gate.Gate, d *rand.Rand, step string, i int) (got, want string, err error) {
	switch step {
	case "edit":
		p.isEdited = !p.isEdited
		set, err := p.rules(p.isEdited)
		if err != nil {
			return "", "", err
		}
		p.model.set = set
		return "", "", g.Swap(set)
	case "ask", "peek", "together":
		return p.ask(g, d, step, i)
	case "reset":
		return "", "", p.reset(g)
	}
	got, want = p.settle(g, d, step)
	return got, want, nil
}

// move sets the clock, also to the instant of the last retry-after, or just before it.
func (p *pair) move(d *rand.Rand) {
	now := p.clock.now.Load()
	switch k := d.IntN(len(p.moves) + 2); {
	case k < len(p.moves):
		now += p.moves[k].Microseconds()
	case p.waits > 0 && p.waits < 1e8:
		now += p.waits - int64(k-len(p.moves))
	}
	p.clock.set(now)
}

func (p *pair) request(name string, with headers) *rules.Request {
	return &rules.Request{User: p.name + "-" + name, Attributes: with}
}

// headers are the attributes of a request that has nothing else.
type headers struct {
	rules.Attributes
	id, tenant string
}

func (h headers) Header(name string) string {
	if name == "Tenant" {
		return h.tenant
	}
	return h.id
}

// headers of a request are drawn.
func (p *pair) headers(d *rand.Rand) (h headers) {
	if len(p.ids) > 0 {
		h.id = p.ids[d.IntN(len(p.ids))]
	}
	if len(p.tenants) > 0 {
		h.tenant = p.tenants[d.IntN(len(p.tenants))]
	}
	return h
}

// ask decides one request, or several together.
func (p *pair) ask(g *gate.Gate, d *rand.Rand, step string, i int) (got, want string, err error) {
	ask := gate.Ask{Times: 1 + d.Int64N(p.most), Lease: fmt.Sprint("lease-", p.name, "-", i)}
	if cost := p.costs[d.IntN(len(p.costs))]; cost != 1 {
		ask.Cost = &cost
	}
	names := []string{"ann", "bob"}
	if step != "together" {
		k := d.IntN(2)
		names = names[k : k+1]
	} else {
		ask.Times = 1
		if p.tenants != nil { // two members of one limit
			names = []string{"ann", "ann"}
		}
	}
	if step == "peek" {
		ask.Times = 0
	}
	questions := make([]gate.Question, len(names))
	requests := make([]*slowRequest, len(names))
	for k, name := range names {
		with := p.headers(d)
		questions[k] = gate.Question{Request: p.request(name, with), Ask: ask, Verdict: new(gate.Verdict)}
		requests[k] = &slowRequest{request: p.request(name, with), ask: &questions[k].Ask, alone: len(names) == 1}
	}
	if len(names) == 1 {
		err = g.Decide(context.Background(), questions[0].Request, ask, questions[0].Verdict)
	} else {
		err = g.DecideTogether(context.Background(), questions)
	}
	p.waits = 0
	p.model.decide(requests)
	for k, r := range requests {
		v := questions[k].Verdict
		got, want = got+p.verdict(v), want+r.text()
		if v.Granted > 0 && ask.Times > 0 {
			p.open = append(p.open, &unsettled{v.Receipt(), r.charges()})
		}
	}
	return got, want, err
}

func (p *pair) verdict(v *gate.Verdict) string {
	text := fmt.Sprintf("%v %d", v.Outcome, v.Granted)
	for _, ban := range v.Banned() {
		text += fmt.Sprintf(", ban of %v", ban.Length)
	}
	for i := range v.Len() {
		c := v.At(i)
		if !c.Decided || c.Shadow && p.back {
			continue
		}
		p.waits = max(p.waits, c.Decision.RetryAfter.Microseconds())
		owes := v.Outcome == gate.Passed && c.Rule.ChargesFull() && v.Times > 0
		text += checkText(c.Claim, c.Decision, c.Granted, owes)
	}
	return text
}

// checkText leaves out when the next request would be granted, for one that was charged whatever was left.
func checkText(c *weir.Claim, d *weir.Decision, granted int64, owes bool) string {
	text := fmt.Sprintf("\n      %s %s: granted %d, remaining %d, reset %v, at %d", c.Limit.Name(), c.Key, granted,
		d.Remaining, d.ResetAfter, d.At-epoch)
	if !owes {
		text += fmt.Sprintf(", retry %v, delay %v", d.RetryAfter, d.Delay)
	}
	return text
}

// settle ends a request that passed.
func (p *pair) settle(g *gate.Gate, d *rand.Rand, step string) (got, want string) {
	if len(p.open) == 0 {
		return "", ""
	}
	k := d.IntN(len(p.open))
	u := p.open[k]
	p.open = slices.Delete(p.open, k, k+1)
	ctx, units := context.Background(), []int64{0, 1, 2, 4}[d.IntN(4)]
	switch step {
	case "respond":
		status := []int{200, 401, 401, 401, 0}[d.IntN(5)]
		rest, err := g.Respond(ctx, u.receipt, gate.Response{Status: status})
		p.model.respond(u.charges, status)
		got, want = fmt.Sprint(status, err), fmt.Sprint(status, nil)
		u.receipt = rest
	case "cancel":
		units = 0
		fallthrough
	case "settle":
		err := g.Settle(ctx, u.receipt, units)
		p.model.settle(u.charges, units)
		got, want = fmt.Sprint(units, err), fmt.Sprint(units, nil)
	}
	err := g.Release(ctx, u.receipt)
	return fmt.Sprint(got, " gone ", err != nil), fmt.Sprint(want, " gone ", !p.model.release(u.charges))
}

func (p *pair) reset(g *gate.Gate) error {
	var v gate.Verdict
	if err := g.Decide(context.Background(), p.request("ann", headers{}), gate.Ask{}, &v); err != nil {
		return err
	}
	p.model.reset(p.request("ann", headers{}))
	return g.Reset(context.Background(), &v)
}
