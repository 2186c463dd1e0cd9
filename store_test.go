package weir_test

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

func TestCheck(t *testing.T) {
	bucket := weir.MustLimit("a", weir.PerMinute(5))
	other := weir.MustLimit("b", weir.PerMinute(5))
	leases := weir.MustLimit("h", weir.Concurrency{Limit: 5, TTL: time.Minute})
	good := weir.Claim{Key: "k", Limit: bucket, Cost: 1}
	held := weir.Claim{Key: "k", Limit: leases, Cost: 1, Lease: "x"}
	with := func(c weir.Claim, change func(*weir.Claim)) []weir.Claim {
		change(&c)
		return []weir.Claim{c}
	}
	for _, test := range []struct {
		name   string
		claims []weir.Claim
		times  int64
		field  string // "": nothing is wrong
	}{
		{"one", []weir.Claim{good}, 1, ""},
		{"a peek", []weir.Claim{good}, 0, ""},
		{"many times", []weir.Claim{good}, weir.MaxUnits, ""},
		{"a cost of 0", with(good, func(c *weir.Claim) { c.Cost = 0 }), weir.MaxUnits, ""},
		{"the largest cost", with(good, func(c *weir.Claim) { c.Cost = weir.MaxUnits }), 1, ""},
		{"any bytes", with(good, func(c *weir.Claim) { c.Key = "\x00\xff\n" }), 1, ""},
		{"the longest key", with(good, func(c *weir.Claim) { c.Key = strings.Repeat("k", weir.MaxKey) }), 1, ""},
		{"two keys", []weir.Claim{good, {Key: "l", Limit: bucket, Cost: 1}}, 1, ""},
		{"two limits", []weir.Claim{good, {Key: "k", Limit: other, Cost: 1}}, 1, ""},
		{"a lease", []weir.Claim{held}, 1, ""},
		{"a peek at leases", with(held, func(c *weir.Claim) { c.Lease = "" }), 0, ""},
		{"a renewal", with(held, func(c *weir.Claim) { c.Renew, c.Cost = true, 0 }), 1, ""},

		{"none", nil, 1, "claims"},
		{"33", make([]weir.Claim, 33), 1, "claims"},
		{"twice the same", []weir.Claim{good, good}, 1, "claims"},
		{"twice the same state", []weir.Claim{good, {Key: "k", Limit: weir.MustLimit("a", weir.PerHour(9)), Cost: 1}},
			1, "claims"},
		{"no limit", []weir.Claim{{Key: "k"}}, 1, "limit"},
		{"the zero limit", []weir.Claim{{Key: "k", Limit: new(weir.Limit)}}, 1, "limit"},
		{"no key", with(good, func(c *weir.Claim) { c.Key = "" }), 1, "key"},
		{"a key over 64 KiB", with(good, func(c *weir.Claim) { c.Key = strings.Repeat("k", weir.MaxKey+1) }), 1, "key"},
		{"a cost below 0", with(good, func(c *weir.Claim) { c.Cost = -1 }), 1, "cost"},
		{"the smallest cost", with(good, func(c *weir.Claim) { c.Cost = math.MinInt64 }), 1, "cost"},
		{"a cost too large", with(good, func(c *weir.Claim) { c.Cost = weir.MaxUnits + 1 }), 1, "cost"},
		{"times below 0", []weir.Claim{good}, -1, "times"},
		{"too many times", []weir.Claim{good}, weir.MaxUnits + 1, "times"},
		{"more than an int64", with(good, func(c *weir.Claim) { c.Cost = 1 << 40 }), 1 << 40, "cost × times"},
		{"a lease of a bucket", with(good, func(c *weir.Claim) { c.Lease = "x" }), 1, "lease"},
		{"a renewal of a bucket", with(good, func(c *weir.Claim) { c.Renew = true }), 1, "lease"},
		{"no lease", with(held, func(c *weir.Claim) { c.Lease = "" }), 1, "lease"},
		{"a renewal of nothing", with(held, func(c *weir.Claim) { c.Lease, c.Renew = "", true }), 0, "lease"},
		{"a lease too long", with(held, func(c *weir.Claim) { c.Lease = strings.Repeat("x", weir.MaxLease+1) }), 1,
			"lease"},
		{"a lease twice", []weir.Claim{held}, 2, "times"},
		{"a lease of nothing", with(held, func(c *weir.Claim) { c.Cost = 0 }), 1, "cost"},
	} {
		expectField(t, test.name, weir.Check(test.claims, test.times, nil), test.field)
	}
	if err := weir.Check([]weir.Claim{good}, 1, make([]weir.Decision, 2)); !isInput(err) {
		t.Errorf("two decisions for one claim: %v", err)
	}
}

func TestAnInputErrorDoesNotRepeatAWholeKey(t *testing.T) {
	err := &weir.InputError{Field: "limit", Given: strings.Repeat("x", 1<<20), Allowed: "less"}
	if n := len(err.Error()); n > 200 {
		t.Errorf("the error is %d bytes long", n)
	}
}

func TestCheckRequest(t *testing.T) {
	limit := weir.MustLimit("a", weir.PerMinute(5))
	claims := []weir.Claim{{Key: "k", Limit: limit, Cost: 1}, {Key: "l", Limit: limit, Cost: 1}}
	for _, test := range []struct {
		name      string
		claims    []weir.Claim
		times     int64
		decisions int // −1: nil
		field     string
	}{
		{"none wanted", claims, 3, -1, ""},
		{"of each", claims, 3, 6, ""},
		{"of a peek", claims, 0, 2, ""},
		{"more than there is memory for, none wanted", claims, weir.MaxUnits, -1, ""},
		{"of one only", claims, 3, 2, "decisions"},
		{"one too few", claims, 3, 5, "decisions"},
		{"none, but wanted", claims, 1, 0, "decisions"},
		{"no claims", nil, 1, -1, "claims"},
		{"times below 0", claims, -1, -1, "times"},
	} {
		r := weir.Request{Claims: test.claims, Times: test.times}
		if test.decisions >= 0 {
			r.Decisions = make([]weir.Decision, test.decisions)
		}
		expectField(t, test.name, r.Check(), test.field)
	}
}

// expectField expects a complaint about a field, or none where the field is "".
func expectField(t *testing.T, what string, err error, field string) {
	t.Helper()
	if field == "" && err == nil {
		return
	}
	if !isInput(err) || !strings.HasPrefix(err.Error(), "weir: "+field+" is ") {
		t.Errorf("%s: %v; want an *InputError of %q", what, err, field)
	}
}

// Two claims on one state are found among any number, wherever they stand, and like ones are not taken for them.
func TestCheckFindsTheSameClaimTwice(t *testing.T) {
	limits := make([]*weir.Limit, weir.MaxClaims)
	for i := range limits {
		limits[i] = weir.MustLimit("limit"+strconv.Itoa(i), weir.PerHour(1))
	}
	for n := 2; n <= weir.MaxClaims; n++ {
		claims := make([]weir.Claim, n)
		for i := range claims { // keys that end alike, some of them equal under other limits
			claims[i] = weir.Claim{Key: strconv.Itoa(i/2) + "-the end of the key", Limit: limits[i%2], Cost: 1}
		}
		if err := weir.Check(claims, 1, nil); err != nil {
			t.Fatalf("%d claims: %v", n, err)
		}
		for i := range n - 1 {
			last := claims[n-1]
			claims[n-1] = claims[i]
			claims[n-1].Limit = weir.MustLimit(claims[i].Limit.Name(), weir.PerHour(2)) // other numbers, the same state
			var input *weir.InputError
			if err := weir.Check(claims, 1, nil); !errors.As(err, &input) || input.Field != "claims" {
				t.Errorf("%d claims, the last is claim %d again: error %v", n, i, err)
			}
			claims[n-1] = last
		}
	}
}
