package httplimit

import (
	"net/http"
	"time"

	"github.com/weirproject/weir/internal/ratefields"
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
	return ratefields.Exhausted(response.Header[fieldLimit])
}

func refused(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// retryAfter reads seconds or a date. A date is compared with the server's Date, if there is one:
// the clocks may differ.
func retryAfter(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	text := h.Get(fieldRetry)
	if n, ok := ratefields.Digits(text); ok {
		return ratefields.InSeconds(n), true
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
