package rules_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/weirproject/weir/rules"
)

// ramped are two rules at a percentage.
func ramped(t *testing.T, percent int) (a, b *rules.Rule) {
	t.Helper()
	set := compiled(t, fmt.Sprintf("rules: [{name: a, key: user, limit: 1/1s, enforce_percent: %d}, {name: b, key: user, limit: 1/1s, enforce_percent: %[1]d}]", percent))
	return set.Rules()[0], set.Rules()[1]
}

// TestPercentagesNest counts shares of many keys: they are right, each contains the smaller
// ones, and those of two rules have nothing to do with each other.
func TestPercentagesNest(t *testing.T) {
	const keys = 20_000
	enforced := make([]bool, keys)
	for _, percent := range []int{0, 1, 10, 20, 50, 99, 100} {
		a, b := ramped(t, percent)
		share, both := 0, 0
		for i := range keys {
			key, _ := a.AppendKey(nil, &rules.Request{User: fmt.Sprint("user-", i)})
			now := a.Enforces(key)
			if enforced[i] && !now {
				t.Errorf("%s is not enforced any more at %d", key, percent)
			}
			if enforced[i] = now; now {
				share++
				if b.Enforces(key) {
					both++
				}
			}
		}
		p := float64(percent) / 100
		within := func(what string, got int, p float64) {
			if deviation := math.Sqrt(keys * p * (1 - p)); math.Abs(float64(got)-keys*p) > 4*deviation {
				t.Errorf("%d percent: %s %d of %d keys", percent, what, got, keys)
			}
		}
		within("enforced are", share, p)
		within("enforced by both are", both, p*p)
	}
}

// TestPercentagesAreTheSameForEver: other nodes, and other releases, must say the same, or
// keys would fall out while a rule is ramped up.
func TestPercentagesAreTheSameForEver(t *testing.T) {
	for key, from := range map[string]int{"user=3:ann": 61, "user=3:bob": 41, "client.ip=11:203.0.113.7": 68} {
		for percent := range 101 {
			if a, _ := ramped(t, percent); a.Enforces([]byte(key)) != (percent >= from) {
				t.Errorf("%s at %d: %v, although it is enforced from %d", key, percent, percent < from, from)
				break
			}
		}
	}
}

func TestPercentIsOfTheSpec(t *testing.T) {
	file, err := rules.Parse("f", []byte("rules: [{name: a, key: user, limit: 1/1s, enforce_percent: 0}, {name: b, limit: 1/1s}]"))
	if err != nil || file.Rules[0].EnforcePercent == nil || *file.Rules[0].EnforcePercent != 0 || file.Rules[1].EnforcePercent != nil {
		t.Fatalf("%+v, %v", file, err)
	}
	set, err := rules.Compile(file)
	if err != nil || set.Rules()[0].EnforcePercent() != 0 || set.Rules()[1].EnforcePercent() != 100 {
		t.Errorf("%v", err)
	}
	for _, percent := range []int{-1, 101} {
		file.Rules[0].EnforcePercent = &percent
		if _, err := rules.Compile(file); err == nil {
			t.Errorf("%d percent is no mistake", percent)
		}
	}
}
