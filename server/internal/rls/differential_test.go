package rls_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/ratelimittest"
	"github.com/weirproject/weir/server/internal/rls"
)

var (
	configurations = flag.Int("configurations", 6, "random configurations of TestAsTheRealService; 200 is the full run")
	callsOfEach    = flag.Int("calls", 100, "random calls of each configuration; 200 is the full run")
	firstSeed      = flag.Uint64("seed", 1, "the first configuration")
)

// A twig is a node of a random configuration.
type twig struct {
	key, value string // of a wildcard with its star
	share      bool
	*leaf      // nil: no limit
	detailed   bool
	valued     bool
	twigs      []*twig
}

// A draw draws configurations and calls.
type draw struct{ *rand.Rand }

func (d draw) one(of ...string) string { return of[d.IntN(len(of))] }
func (d draw) chance(percent int) bool { return d.IntN(100) < percent }

var names = []string{"", "", "", "red", "green", "blue"}

func (d draw) leaf() *leaf {
	l := &leaf{name: d.one(names...), shadow: d.chance(15), quota: d.chance(20)}
	if l.unlimited = d.chance(12); !l.unlimited {
		l.unit = d.one("SECOND", "SECOND", "MINUTE", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR")
		l.requests = int64(d.IntN(9))
	}
	if d.chance(12) {
		l.replaces = slices.DeleteFunc([]string{"red", "green", "blue"}, func(s string) bool { return s == l.name || d.chance(50) })
	}
	return l
}

// level draws the nodes of a level, at most so many levels.
func (d draw) level(levels int) (list []*twig) {
	taken := make(map[string]bool)
	for range 2 + d.IntN(5) {
		t := &twig{key: d.one("k", "l", "m"), detailed: d.chance(10), valued: d.chance(10)}
		switch d.IntN(3) {
		case 0:
			t.value = d.one("v1", "v2", "w1", "w2")
		case 1:
			t.value = d.one("v*", "w*", "*")
			t.share = d.chance(40)
		}
		if taken[t.text()] {
			continue
		}
		taken[t.text()] = true
		if d.chance(75) {
			t.leaf = d.leaf()
		}
		if levels > 1 && d.chance(40) {
			t.twigs = d.level(levels - 1)
		}
		list = append(list, t)
	}
	return list
}

func (t *twig) text() string {
	if t.value == "" {
		return t.key
	}
	return t.key + "_" + t.value
}

// data is the node as a file has it.
func (t *twig) data() map[string]any {
	node := map[string]any{"key": t.key}
	set := func(name string, value any, is bool) {
		if is {
			node[name] = value
		}
	}
	set("value", t.value, t.value != "")
	set("share_threshold", true, t.share)
	set("detailed_metric", true, t.detailed)
	set("value_to_metric", true, t.valued)
	set("descriptors", dataOf(t.twigs), len(t.twigs) > 0)
	if t.leaf == nil {
		return node
	}
	set("shadow_mode", true, t.shadow)
	set("quota_mode", true, t.quota)
	limit := map[string]any{"requests_per_unit": t.requests, "unit": strings.ToLower(t.unit)}
	if t.unlimited {
		limit = map[string]any{"unlimited": true}
	}
	if t.name != "" {
		limit["name"] = t.name
	}
	var replaces []any
	for _, name := range t.replaces {
		replaces = append(replaces, map[string]any{"name": name})
	}
	if len(replaces) > 0 {
		limit["replaces"] = replaces
	}
	node["rate_limit"] = limit
	return node
}

func dataOf(list []*twig) (data []any) {
	for _, t := range list {
		data = append(data, t.data())
	}
	return data
}

// find walks the tree as the service does.
func find(level []*twig, entries []*common.RateLimitDescriptor_Entry) (found *leaf, key, own string) {
	for i, e := range entries {
		var next *twig
		for _, fits := range []func(*twig) bool{
			func(t *twig) bool { return t.text() == e.Key+"_"+e.Value },
			func(t *twig) bool {
				start, wild := strings.CutSuffix(t.text(), "*")
				return wild && strings.HasPrefix(e.Key+"_"+e.Value, start)
			},
			func(t *twig) bool { return t.text() == e.Key },
		} {
			if j := slices.IndexFunc(level, fits); next == nil && j >= 0 {
				next = level[j]
			}
		}
		if next == nil {
			return nil, "", ""
		}
		value := e.Value
		if next.share {
			value = next.value
		}
		key, own = key+e.Key+"_"+value+"_", own+next.text()+"_"+value+"_"
		if i == len(entries)-1 {
			found = next.leaf
		}
		level = next.twigs
	}
	return found, key, own
}

const testDomain = "shop"

// patience is longer than a busy machine delays Redis: a local count would be another one.
const patience = 30 * time.Second

// call draws a call.
func (d draw) call() *ratelimit.RateLimitRequest {
	r := &ratelimit.RateLimitRequest{Domain: testDomain}
	if d.chance(3) {
		r.Domain = "other"
	}
	if d.chance(30) {
		r.HitsAddend = uint32(d.IntN(4))
	}
	brought := uint32(d.IntN(5)) // one number for all, as weir counts two limits of one descriptor by the lower one
	for range 1 + d.IntN(4) {
		one := new(common.RateLimitDescriptor)
		for range 1 + d.IntN(3)*d.IntN(2) {
			one.Entries = append(one.Entries, &common.RateLimitDescriptor_Entry{Key: d.one("k", "l", "m"),
				Value: d.one("v1", "v2", "v3", "w1", "w3", "x")})
		}
		if d.chance(25) {
			one.HitsAddend = wrapperspb.UInt64(uint64(d.IntN(4)))
		}
		if d.chance(6) {
			one.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: brought,
				Unit: envoytype.RateLimitUnit_DAY}
		}
		r.Descriptors = append(r.Descriptors, one)
	}
	return r
}

// wants are the limits that the descriptors of a call meet.
func wants(tree []*twig, r *ratelimit.RateLimitRequest) (list []want) {
	for _, d := range r.GetDescriptors() {
		w := want{hits: max(1, int64(r.GetHitsAddend())), stated: d.GetHitsAddend() != nil}
		if w.stated {
			w.hits = int64(d.GetHitsAddend().GetValue())
		}
		if w.leaf, w.key, w.own = find(tree, d.GetEntries()); d.GetLimit() != nil {
			l := d.GetLimit()
			w.leaf, w.brings = &leaf{requests: int64(l.GetRequestsPerUnit()), unit: l.GetUnit().String()}, true
			w.key = ""
			for _, e := range d.GetEntries() {
				w.key += e.Key + "_" + e.Value + "_"
			}
			w.own = "own " + w.key
		}
		if r.GetDomain() != testDomain {
			w.leaf = nil
		}
		list = append(list, w)
	}
	return list
}

// A rivalry is both services with one configuration, or weir alone.
type rivalry struct {
	t             *testing.T
	tree          []*twig
	shadow, quota bool
	real          ratelimit.RateLimitServiceClient // nil: none
	weir          ratelimit.RateLimitServiceServer
	there, here   model
	causes        map[string]int
}

// TestAsTheRealService: random calls about random configurations are answered as by envoyproxy/ratelimit. Each service
// answers as its model, so that a difference is one that the models have, by a known cause. No counter here is higher than
// there, so no call is refused here alone.
func TestAsTheRealService(t *testing.T) {
	program := ratelimittest.Real(t)
	theirRedis, ourRedis := redistest.Start(t), redistest.Start(t)
	causes, equal := make(map[string]int), 0
	for seed := *firstSeed; seed < *firstSeed+uint64(*configurations); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { // whose services end with it
			for try := 1; ; try++ {
				theirRedis.Do("FLUSHALL")
				ourRedis.Do("FLUSHALL")
				v, d := drawRivalry(t, seed)
				v.start(program, theirRedis.Addr())
				v.startWeir(layered(t, ourRedis))
				alike, done := v.play(d)
				if v.ended(done, try) {
					equal += alike
					for cause, n := range v.causes {
						causes[cause] += n
					}
					return
				}
			}
		})
	}
	t.Logf("%d configurations of %d calls: %d equal answers, and different ones by cause %v", *configurations, *callsOfEach,
		equal, causes)
}

// layered is a store on Redis behind the layers of a server. They are new for each configuration, as they remember keys.
func layered(t *testing.T, redis *redistest.Server) weir.Store {
	t.Helper()
	store, err := redisstore.Open(t.Context(), redis.URL(), redisstore.WithTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	stack, err := layers.New(store, layers.Options{Local: memstore.New(), Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stack.Store.Close() })
	return stack.Store
}

// TestAsItsModel is the half of TestAsTheRealService that needs no other service, and counts in memory.
func TestAsItsModel(t *testing.T) {
	for seed := range uint64(40) {
		for try := 1; ; try++ {
			v, d := drawRivalry(t, seed)
			v.startWeir(memstore.New())
			if _, done := v.play(d); v.ended(done, try) {
				break
			}
		}
	}
}

// ended reports whether a configuration is done with.
func (v *rivalry) ended(done bool, try int) bool {
	v.t.Helper()
	if v.t.Failed() {
		v.t.Fatalf("%s", v.text())
	}
	if !done && try == 5 {
		v.t.Fatal("a second of the clock ended during a call, five times")
	}
	return done
}

func drawRivalry(t *testing.T, seed uint64) (*rivalry, draw) {
	d := draw{rand.New(rand.NewPCG(seed, 1))}
	return &rivalry{t: t, tree: d.level(3), shadow: d.chance(8), quota: d.chance(8), there: make(model), here: make(model),
		causes: make(map[string]int)}, d
}

// text is the configuration.
func (v *rivalry) text() []byte {
	text, _ := json.Marshal(map[string]any{"domain": testDomain, "descriptors": dataOf(v.tree)})
	return text
}

// start starts the real service.
func (v *rivalry) start(program, redis string) {
	v.t.Helper()
	place := ratelimittest.NewPlace(v.t, redis, map[string]string{"shop.yaml": string(v.text())}, "LIMIT_RESPONSE_HEADERS_ENABLED=true",
		"RESPONSE_DYNAMIC_METADATA=true", "SHADOW_MODE="+strconv.FormatBool(v.shadow), "QUOTA_MODE="+strconv.FormatBool(v.quota))
	service := place.Start(program)
	service.Await()
	conn, err := grpc.NewClient(place.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { conn.Close() })
	v.real = ratelimit.NewRateLimitServiceClient(conn)
}

// startWeir starts weir on a store.
func (v *rivalry) startWeir(store weir.Store) {
	v.t.Helper()
	config, err := ratelimitconf.Parse("shop.yaml", v.text())
	if err != nil {
		v.t.Fatal(err)
	}
	file, err := ratelimitconf.Compile([]*ratelimitconf.Config{config}, ratelimitconf.Options{})
	if err != nil {
		v.t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		v.t.Fatal(err)
	}
	g, err := gate.New(store, set, gate.WithLocal(memstore.New()), gate.WithBudget(patience))
	if err != nil {
		v.t.Fatal(err)
	}
	var r registrar
	rls.New(g, rls.Options{Ratelimit: &rls.Ratelimit{Headers: [3]string{"L", "R", "T"}, Metadata: true, Shadow: v.shadow,
		Quota: v.quota}})(&r)
	v.weir = r.service
}

// play sends the calls, each within one second of the clock. done is false if a second ended during a call.
func (v *rivalry) play(d draw) (equal int, done bool) {
	for i := range *callsOfEach {
		r := d.call()
		if left := time.Second - time.Duration(time.Now().Nanosecond()); v.real != nil && left < 200*time.Millisecond {
			time.Sleep(left + 20*time.Millisecond) // windows begin with a second
		}
		now := time.Now().Unix()
		var there *ratelimit.RateLimitResponse
		var err error
		if v.real != nil {
			if there, err = v.real.ShouldRateLimit(context.Background(), r, grpc.WaitForReady(true)); err != nil {
				v.t.Fatal(err)
			}
		}
		here, err := v.weir.ShouldRateLimit(context.Background(), r)
		if err != nil {
			v.t.Fatal(err)
		}
		if time.Now().Unix() != now {
			return 0, false
		}
		if v.compare(fmt.Sprintf("call %d %v", i, r), now, r, there, here) {
			equal++
		}
		if v.t.Failed() {
			return 0, true
		}
	}
	return equal, true
}

// compare compares the answers with their models, and the models with each other.
func (v *rivalry) compare(call string, now int64, r *ratelimit.RateLimitRequest, there, here *ratelimit.RateLimitResponse) (equal bool) {
	list := wants(v.tree, r)
	replace(list)
	cause := v.cause(list, now)
	their, our := v.there.theirs(list, now, v.shadow, v.quota), v.here.ours(list, now, v.shadow, v.quota)
	theirText, ourText := their.text(now), our.text(now)
	if there != nil && textOf(there) != theirText {
		v.t.Errorf("%s: the real service answers\n%s, its model\n%s", call, textOf(there), theirText)
	}
	if got := textOf(here); got != ourText {
		v.t.Errorf("%s: weir answers\n%s, its model\n%s; there it is\n%s", call, got, ourText, theirText)
	}
	if there != nil {
		v.metadata(there, here)
	}
	if our.over && cause == "" {
		cause = "refused"
	}
	for at, used := range v.here {
		if place := theirPlace(list, at, v.here, now); place != "" && used > max(0, v.there[place]) {
			v.t.Errorf("%s: %d used of %s, more than there", call, used, at)
		}
	}
	if our.overall != ok && their.overall == ok && cause != "quota" && cause != "zero" {
		v.t.Errorf("%s: refused here alone, by %q", call, cause)
	}
	if theirText == ourText {
		return true
	}
	if cause == "" {
		v.t.Errorf("%s: differs without a cause:\n%s\n%s", call, theirText, ourText)
	}
	v.causes[cause]++
	return false
}

// theirPlace is the counter there of one of a call here; "" if it is of another call.
func theirPlace(list []want, at string, here model, now int64) string {
	for i := range list {
		if w := &list[i]; w.counted() && here.at(w.own, w, now) == at {
			return here.at(w.key, w, now)
		}
	}
	return ""
}

// cause is why the answers to a call may differ, before the call: the first of the causes that applies.
func (v *rivalry) cause(list []want, now int64) string {
	counted := slices.DeleteFunc(slices.Clone(list), func(w want) bool { return !w.counted() })
	any := func(is func(w *want) bool) bool {
		return slices.ContainsFunc(counted, func(w want) bool { return is(&w) })
	}
	seen := make(map[string]bool)
	switch {
	case any(func(w *want) bool { return w.quota || v.quota || v.shadow && len(list) > 1 }):
		return "quota"
	case any(func(w *want) bool { return w.requests == 0 && w.hits == 0 }):
		return "zero"
	case any(func(w *want) bool {
		again := seen[w.key]
		seen[w.key] = true
		return again
	}):
		return "twice"
	case any(func(w *want) bool {
		return w.requests > 0 && v.there[v.there.at(w.key, w, now)] != v.here[v.here.at(w.own, w, now)]
	}):
		return "charged"
	}
	return ""
}

// metadata compares the dynamic metadata, without what later versions there do not have.
func (v *rivalry) metadata(there, here *ratelimit.RateLimitResponse) {
	want := maps.Clone(there.GetDynamicMetadata().AsMap())
	delete(want, "quotaModeEnabled")
	delete(want, "quotaModeViolations")
	text := func(m map[string]any) string { // protobuf writes a limit with one space or two, by chance
		return strings.Join(strings.Fields(fmt.Sprint(m)), " ")
	}
	if got := here.GetDynamicMetadata().AsMap(); text(got) != text(want) {
		v.t.Errorf("metadata\n%v, there\n%v", got, want)
	}
}
