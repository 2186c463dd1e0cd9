package ratefields

import (
	"slices"
	"testing"
)

func TestRateLimitIsParsed(t *testing.T) {
	for text, want := range map[string][]serviceLimit{ // nil is malformed, as the draft has it
		``: {}, `"a";r=0;t=5`: {{0, 5}}, `"a";r=0;t=5, "b";r=7`: {{0, 5}, {7, 0}}, `"a"; r=0 , "b";r=1`: {{0, 0}, {1, 0}},
		"\"a\";r=1\t,\"b\";r=2": {{1, 0}, {2, 0}}, `"a";r=1;r=0`: {{0, 0}}, `"a";r=-1;r=1`: {{1, 0}}, `"a";r=-0`: {{0, 0}}, `"a";r=-00;t=-0`: {{0, 0}},
		`"a";r=999999999999999`: {{999999999999999, 0}}, `"a\"b\\";r=3`: {{3, 0}}, `a;r=3`: {{3, 0}}, `*a/b:c;r=3`: {{3, 0}}, `?1;r=3`: {{3, 0}},
		`:YWJj:;r=3`: {{3, 0}}, `1.5;r=3`: {{3, 0}}, `"a";r=1;pk=:cHs=:;x=?0;y=tok;z=@17;q=-1.125`: {{1, 0}},
		`"a" ; r=0`: nil, `"a";r=0,`: nil, `,"a";r=0`: nil, `"a";r`: nil, `"a"`: nil, `"a\c";r=3`: nil, `"a;r=3`: nil, "\"\x7f\";r=3": nil, `?2;r=3`: nil,
		`:Y*:;r=3`: nil, `"a";r=1.0`: nil, `"a";r=-1`: nil, `"a";R=1`: nil, `"a";r=1;x=@1.5`: nil, `"a";r=1;x=1.1234`: nil, `"a";r=1;x=`: nil,
		`"a";r=1000000000000000`: nil, `("a");r=1`: nil, `"a";r=1;t="5"`: nil, `"a";r=1;t`: nil, `"a";r=1;t=-1`: nil, `"a";;r=1`: nil, "\t\"a\";r=1": nil,
		`"a";r=-01`: nil, `"a";r=-`: nil, `"a";r=-0.0`: nil,
	} {
		if limits, ok := parseLimits(text); ok != (want != nil) || !slices.Equal(limits, want) {
			t.Errorf("%q: %v, %v; want %v", text, limits, ok, want)
		}
	}
}

func FuzzRateLimit(f *testing.F) {
	f.Add(`"a";r=0;t=5, b;r=1;x=:Y*:`)
	f.Fuzz(func(t *testing.T, text string) {
		limits, ok := parseLimits(text)
		for _, limit := range limits {
			if !ok || limit.r < 0 || limit.t < 0 {
				t.Errorf("%q: %v, %v", text, limits, ok)
			}
		}
	})
}
