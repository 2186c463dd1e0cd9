package ratefields

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// Digits parses a whole number without a sign, saturated at the maximum.
func Digits(text string) (n int64, ok bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		n = math.MaxInt64
	}
	return n, true
}

// InSeconds is n seconds, saturated at the longest duration of whole seconds.
func InSeconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}

// Exhausted is the longest t of the limits with r=0 in RateLimit; 0 if no limit has it, or if the field is malformed.
func Exhausted(lines []string) (wait time.Duration) {
	if len(lines) == 0 {
		return 0
	}
	limits, ok := parseLimits(strings.Join(lines, ","))
	if !ok {
		return 0
	}
	for _, limit := range limits {
		if limit.r == 0 {
			wait = max(wait, InSeconds(limit.t))
		}
	}
	return wait
}

// A serviceLimit is an item of RateLimit: the remaining quota, and its seconds to the reset (0 if
// absent).
type serviceLimit struct{ r, t int64 }

// parseLimits reads RateLimit, a list of structured fields (RFC 9651). One malformed item
// invalidates the list, as the draft requires.
func parseLimits(text string) (limits []serviceLimit, ok bool) {
	list, err := httpsfv.UnmarshalList([]string{text})
	if err != nil {
		return nil, false
	}
	for _, member := range list {
		item, ok := member.(httpsfv.Item) // the draft has no inner lists
		if !ok {
			return nil, false
		}
		r, known := number(item, "r")
		if !known {
			return nil, false
		}
		t, known := number(item, "t")
		if _, given := item.Params.Get("t"); given && !known {
			return nil, false
		}
		limits = append(limits, serviceLimit{r, t})
	}
	return limits, true
}

// number is a parameter that is a whole number from 0 on.
func number(item httpsfv.Item, name string) (n int64, ok bool) {
	value, _ := item.Params.Get(name)
	n, ok = value.(int64)
	return n, ok && n >= 0
}
