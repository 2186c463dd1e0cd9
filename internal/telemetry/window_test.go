package telemetry

import (
	"math"
	"testing"

	"github.com/weirproject/weir/internal/gatetest"
)

func TestWindowOfEachAlgorithm(t *testing.T) {
	for text, want := range map[string]window{
		"fixed_window 10/1m":        {60, 10},
		"sliding_log 10/1h":         {3600, 10},
		"sliding_counter 10/1s":     {1, 10},
		"100/1m":                    {60, 100},
		"10/1s burst 50":            {5, 50},
		"100/1m burst 10":           {6, 10},
		"1000/100ms":                {1, 10_000},
		"calendar 5/day":            {86400, 5},
		"concurrency 5 ttl 10s":     {},
		"leaky_queue 10/1s queue 9": {1, 10},
	} {
		set := gatetest.Rules(t, "rules: [{name: a, key: [user], limit: "+text+"}]")
		if got := windowOf(set.Rules()[0]); got.seconds != want.seconds || math.Abs(got.grant-want.grant) > 1e-9 {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}
