package httplimit

import (
	"encoding/base64"
	"errors"
	"math"
	"testing"

	"github.com/dunglas/httpsfv"
)

var rateLimits = []string{
	"", `"a";r=0;t=5`, `"a";r=0;t=5,"b";r=1`, `"a" ; r=0`, `"a"; r=0 , "b";r=1`, `"a";r=0,`, `,"a";r=0`, `"a";r`, `"a"`,
	`"a\"b\\";r=3`, `"a\c";r=3`, `"a;r=3`, "\"\x7f\";r=3", `a;r=3`, `*a/b:c;r=3`, `?1;r=3`, `?2;r=3`, `:YWJj:;r=3`, `:Y*:;r=3`, `1.5;r=3`,
	`"a";r=1.0`, `"a";r=-1`, `"a";r=1;r=0`, `"a";R=1`, `"a";r=1;pk=:cHs=:;x=?0;y=tok;z=@17;q=-1.125`, `"a";r=1;x=@1.5`, `"a";r=1;x=1.1234`,
	`"a";r=1;x=`, `"a";r=999999999999999`, `"a";r=1000000000000000`, `("a");r=1`, `"a";r=1;t="5"`, `"a";;r=1`, "\t\"a\";r=1", `"a";r=1;t`, `"a";r=-1;r=1`, `"a";r=-0`, `"a";r=-00;t=-0`, `"a";r=-01`, `"a";r=-`, `"a";r=-0.0`, `:Y:;r=1`, `:YQ:;r=1`, `:YQ==:;r=1`,
}

func TestRateLimitParserMatchesHttpsfv(t *testing.T) {
	for _, text := range rateLimits {
		compare(t, text)
	}
	if limits, ok := parseLimits(`"a";r=0;t=5, "b";r=7`); !ok || len(limits) != 2 || limits[0] != (serviceLimit{0, 5}) || limits[1] != (serviceLimit{7, 0}) {
		t.Errorf("%v, %v", limits, ok)
	}
}

func FuzzRateLimit(f *testing.F) {
	for _, text := range rateLimits {
		f.Add(text)
	}
	f.Fuzz(compare)
}

// compare checks that every accepted field reads the same with httpsfv.
func compare(t *testing.T, text string) {
	limits, ok := parseLimits(text)
	list, err := httpsfv.UnmarshalList([]string{text})
	want, good := fromList(list)
	if !ok {
		if err == nil && good && len(list) > 0 {
			t.Errorf("%q is malformed for us, %v for httpsfv", text, want)
		}
		return
	}
	var padding base64.CorruptInputError
	if errors.As(err, &padding) { // RFC 9651, 4.2.7: padding may be invalid, and is not read here
		return
	}
	if text != "" && (err != nil || !good) || len(want) != len(limits) {
		t.Fatalf("%q is %v for us, %v for httpsfv: %v", text, limits, want, err)
	}
	for i := range limits {
		if limits[i] != want[i] {
			t.Errorf("%q: %v, want %v", text, limits, want)
		}
	}
}

// fromList reads a list by the rules of the draft; it is not good if malformed by the draft, or if it
// has items that this package does not read.
func fromList(list httpsfv.List) (limits []serviceLimit, good bool) {
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			return nil, false
		}
		if _, ok := item.Value.(httpsfv.DisplayString); ok {
			return nil, false
		}
		limit := serviceLimit{r: -1}
		for _, key := range item.Params.Names() {
			value, _ := item.Params.Get(key)
			if _, ok := value.(httpsfv.DisplayString); ok {
				return nil, false
			}
			number, whole := value.(int64)
			if (key == "r" || key == "t") && (!whole || number < 0 || number == math.MinInt64) {
				return nil, false
			}
			switch key {
			case "r":
				limit.r = number
			case "t":
				limit.t = number
			}
		}
		if limit.r < 0 {
			return nil, false
		}
		limits = append(limits, limit)
	}
	return limits, true
}
