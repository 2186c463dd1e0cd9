package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// advice is the wait that a response requests. Retry-After precedes RateLimit, as the draft
// requires; a malformed field counts as absent. A cached response (Age) is ignored, because its
// wait may be over.
func advice(response *http.Response, now time.Time) time.Duration {
	if refused(response.StatusCode) {
		if wait, ok := retryAfter(response.Header, now); ok {
			return wait
		}
	}
	if age := response.Header.Get("Age"); age != "" && age != "0" {
		return 0
	}
	return exhausted(response.Header[fieldLimit])
}

func refused(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// retryAfter reads seconds or a date. A date is compared with the server's Date, if there is one:
// the clocks may differ.
func retryAfter(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	text := h.Get(fieldRetry)
	if n, ok := digits(text); ok {
		return inSeconds(n), true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(0, at.Sub(now)), true
}

// digits parses a whole number, saturated at the maximum.
func digits(text string) (n int64, ok bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		n = math.MaxInt64
	}
	return n, true
}

func inSeconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}

// exhausted is the longest t of the limits with r=0.
func exhausted(lines []string) (wait time.Duration) {
	limits, ok := parseLimits(strings.Join(lines, ","))
	if !ok {
		return 0
	}
	for _, limit := range limits {
		if limit.r == 0 {
			wait = max(wait, inSeconds(limit.t))
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
