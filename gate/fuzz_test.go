package gate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// A drawer draws sets of rules, and requests that they are for.
type drawer struct{ *rand.Rand }

// one of some words; it is often the empty one.
func (d drawer) word(words ...string) string {
	if d.IntN(3) > 0 {
		return ""
	}
	return words[d.IntN(len(words))]
}

func (d drawer) words(words ...string) []string {
	if d.IntN(4) > 0 {
		return nil
	}
	d.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
	return words[:1+d.IntN(len(words))]
}

func (d drawer) table(name string, words ...string) map[string][]string {
	if values := d.words(words...); values != nil && !slices.Contains(values, "*") {
		return map[string][]string{name: values}
	}
	return nil
}

func (d drawer) limits() (list []string) {
	all := []string{"100/1m", "5/1s burst 9", "7/3s overdraft 2", "fixed_window 50/1h", "fixed_window 3/1s epoch", "sliding_log 20/1m",
		"sliding_counter 60/1m slices 6", "calendar 1000/day in Europe/Berlin", "concurrency 3 ttl 30s", "leaky_queue 10/s queue 5", "9/1m step"}
	for range 1 + d.IntN(bounds.Limits) {
		list = append(list, all[d.IntN(len(all))])
	}
	return list
}

func (d drawer) match() rules.Match {
	return rules.Match{
		Method: d.words("GET", "HEAD", "POST"), Host: d.words("a.example.com", "*.example.com", "*.b.example.com"),
		Path:   d.word("/", "/a", "/a/", "/a/**", "/a/b", "/*/b", "/a/{id}/c", "/{x}/b/**", "/**", "/a;p", "/%61/b", "/A"),
		Client: d.words("10.0.0.0/8", "10.1.0.0/16", "192.0.2.7", "2001:db8::/32"), Service: d.words("mail", "shop"), User: d.words("ann", "bob"),
		Route: d.words("r1"), Header: d.table("X-Plan", "free", "paid"), Query: d.table("q", "1", "2"), Descriptor: d.table("d", "x"),
	}
}

func (d drawer) rule(i int) rules.Spec {
	s := rules.Spec{Name: fmt.Sprint("r", i), Match: d.match(), Limit: d.limits(), Group: d.word("g", "h"), Key: d.words("client.ip", "user", "header.X-Plan lower", "cookie.sid", "method"),
		OnMissing: rules.OnMissing(d.word("skip", "anonymous", "deny")), Mode: rules.Mode(d.word("enforce", "shadow")), OnStoreError: rules.StoreError(d.word("local", "allow", "deny"))}
	if d.IntN(5) == 0 {
		s.Ban = rules.Ban{After: "2 refusals within 1m", For: "10m", Then: []string{"1h"}}
	}
	if d.IntN(5) == 0 && len(s.Key) == 1 && s.Key[0] != "client.ip" {
		s.Overrides = []rules.Override{{Key: []string{"ann"}, Limit: d.limits()}, {Key: []string{"*"}, Limit: d.limits()}}
	}
	if d.IntN(6) == 0 && len(s.Key) > 0 {
		percent := d.IntN(101)
		s.EnforcePercent = &percent
	}
	if d.IntN(6) == 0 {
		s.Candidate = rules.Candidate{Limit: []string{"3/1m", "9/1h"}}
	}
	if d.IntN(6) == 0 {
		s.Cost = rules.Cost{From: "header.X-Cost", Default: 1, Max: 3}
	}
	return s
}

func (d drawer) file() *rules.File {
	file := &rules.File{Name: "drawn"}
	for i := range 1 + d.IntN(24) {
		file.Rules = append(file.Rules, d.rule(i))
	}
	for i := range d.IntN(3) {
		file.Exceptions = append(file.Exceptions, rules.Exception{ID: fmt.Sprint(i), Kind: rules.Overridden,
			Rule: fmt.Sprint("r", d.IntN(len(file.Rules))), Values: []string{d.word("ann", "192.0.2.7", "free")}, Limit: d.limits()})
	}
	return file
}

func (d drawer) request() *rules.Request {
	r := &rules.Request{Method: d.word("GET", "HEAD", "POST", "post", "PURGE"), Host: d.word("a.example.com", "b.example.com", "x.b.example.com", "c"),
		Path: d.word("/", "/a", "/a/", "/a/b", "/a/b/c", "/x/b", "/a;p/b", "/;/a", "/%61", "/A", "*"), Service: d.word("mail", "shop", "x"),
		User: d.word("ann", "bob", "x"), Route: d.word("r1", "r2"), Attributes: said{"X-Plan": d.word("free", "paid", "x"), "q": d.word("1", "2", "3"), "d": d.word("x", "y"),
			"sid": d.word("s"), "X-Cost": d.word("1", "2", "4")}}
	if address := d.word("10.1.2.3", "10.2.3.4", "192.0.2.7", "2001:db8::1", "::1"); address != "" {
		r.Client = netip.MustParseAddr(address)
	}
	return r
}

type said map[string]string

func (a said) Header(name string) string     { return a[name] }
func (a said) Query(name string) string      { return a[name] }
func (a said) Cookie(name string) string     { return a[name] }
func (a said) Descriptor(name string) string { return a[name] }

// decidesEverything draws a set and requests. It reports whether the set compiles, and if not
// whether it needs too many claims.
func decidesEverything(t *testing.T, seed1, seed2 uint64) (compiled, crowded bool) {
	d := drawer{rand.New(rand.NewPCG(seed1, seed2))}
	set, err := rules.Compile(d.file())
	if err != nil {
		return false, strings.Contains(err.Error(), "a decision holds at most")
	}
	store := memstore.New()
	defer store.Close()
	g, err := gate.New(store, set, gate.WithLocal(store))
	if err != nil {
		t.Fatal(err)
	}
	var v gate.Verdict
	for i := range 40 {
		ask := gate.Ask{Times: d.Int64N(2)}
		if d.IntN(2) == 0 {
			ask.Aside = []weir.Claim{guard(t, fmt.Sprint("lease-", i))}
		}
		r := d.request()
		err := g.Decide(t.Context(), r, ask, &v)
		var input *weir.InputError
		ownMistake := errors.As(err, &input) && strings.HasPrefix(input.Field, "header X-Cost")
		if err != nil && !ownMistake || err == nil && (v.Outcome == gate.Failed || v.Err != nil) {
			t.Fatalf("seeds %d, %d: %+v: %v %v %v", seed1, seed2, r, v.Outcome, v.Err, err)
		}
	}
	return true, false
}

// FuzzASetThatCompilesDecidesEveryRequest: accepted rules cause no error of a request.
func FuzzASetThatCompilesDecidesEveryRequest(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, seed1, seed2 uint64) { decidesEverything(t, seed1, seed2) })
}

func TestASetThatCompilesDecidesEveryRequest(t *testing.T) {
	compiled, crowded := 0, 0
	for seed := range uint64(400) {
		good, full := decidesEverything(t, seed, 1)
		if good {
			compiled++
		}
		if full {
			crowded++
		}
	}
	if (compiled < 40 || crowded < 40) && !testing.Short() { // -short draws a fifth
		t.Errorf("%d sets compile and %d need too many claims: the draw is too thin to show anything", compiled, crowded)
	}
}
