package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
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
// invalidates the list, as the draft requires. Inner lists and display strings are malformed here,
// because the draft has neither.
func parseLimits(text string) (limits []serviceLimit, ok bool) {
	s := fieldScanner{text: strings.Trim(text, " ")}
	for s.text != "" {
		limit, ok := s.item()
		if !ok {
			return nil, false
		}
		limits = append(limits, limit)
		s.text = strings.TrimLeft(s.text, " \t")
		if s.text == "" {
			break
		}
		if !s.take(",") {
			return nil, false
		}
		s.text = strings.TrimLeft(s.text, " \t")
		if s.text == "" { // a comma with nothing after it
			return nil, false
		}
	}
	return limits, true
}

// A fieldScanner reads a structured field from its front.
type fieldScanner struct{ text string }

func (s *fieldScanner) item() (limit serviceLimit, ok bool) {
	if _, ok = s.bare(); !ok {
		return limit, false
	}
	limit.r = -1
	for s.take(";") {
		s.text = strings.TrimLeft(s.text, " ")
		key := s.span(isKey)
		if key == "" || !strings.Contains("abcdefghijklmnopqrstuvwxyz*", key[:1]) {
			return limit, false
		}
		value := "?1"
		if s.take("=") {
			if value, ok = s.bare(); !ok {
				return limit, false
			}
		}
		// RFC 9651, 3.3.1: the digits of an integer may be zeros behind a minus.
		if rest, minus := strings.CutPrefix(value, "-"); minus && strings.Trim(rest, "0") == "" {
			value = rest
		}
		number, ok := digits(value)
		if !ok {
			number = -1
		}
		switch key { // the last duplicate counts
		case "r":
			limit.r = number
		case "t":
			limit.t = number
		}
	}
	return limit, limit.r >= 0 && limit.t >= 0
}

// bare reads one bare item and returns its text.
func (s *fieldScanner) bare() (text string, ok bool) {
	if s.text == "" {
		return "", false
	}
	before := s.text
	switch c := s.text[0]; {
	case c == '"':
		ok = s.quoted()
	case c == ':':
		s.text = s.text[1:]
		s.span(isBase64)
		ok = s.take(":")
	case c == '?':
		ok = s.take("?0") || s.take("?1")
	case c == '@':
		s.text = s.text[1:]
		ok = s.number() && !strings.Contains(before[:len(before)-len(s.text)], ".")
	case c == '-' || isDigit(c):
		ok = s.number()
	case isAlpha(c) || c == '*':
		ok = s.span(isToken) != ""
	}
	return before[:len(before)-len(s.text)], ok
}

func (s *fieldScanner) quoted() bool {
	for i := 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.text = s.text[i+1:]
			return true
		case c == '\\':
			if i++; i == len(s.text) || s.text[i] != '"' && s.text[i] != '\\' {
				return false
			}
		case c < 0x20 || c > 0x7e:
			return false
		}
	}
	return false
}

// number reads up to 15 digits, or up to 12, a dot and up to 3.
func (s *fieldScanner) number() bool {
	s.take("-")
	whole := s.span(isDigit)
	if !s.take(".") {
		return len(whole) >= 1 && len(whole) <= 15
	}
	fraction := s.span(isDigit)
	return len(whole) >= 1 && len(whole) <= 12 && len(fraction) >= 1 && len(fraction) <= 3
}

func (s *fieldScanner) take(prefix string) (ok bool) {
	s.text, ok = strings.CutPrefix(s.text, prefix)
	return ok
}

// span reads a run of characters of one kind.
func (s *fieldScanner) span(kind func(byte) bool) string {
	n := 0
	for n < len(s.text) && kind(s.text[n]) {
		n++
	}
	read := s.text[:n]
	s.text = s.text[n:]
	return read
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isAlpha(c byte) bool  { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isBase64(c byte) bool { return isAlpha(c) || isDigit(c) || c == '+' || c == '/' || c == '=' }

func isKey(c byte) bool {
	return c >= 'a' && c <= 'z' || isDigit(c) || c == '_' || c == '-' || c == '.' || c == '*'
}

func isToken(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
