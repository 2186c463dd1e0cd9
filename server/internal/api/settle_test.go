package api_test

import (
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

const tokenRules = `
rules:
  - {name: tokens, match: {path: /chat}, key: [user], limit: fixed_window 1000/1h}
  - {name: slots, match: {path: /chat}, key: [user], limit: concurrency 2 ttl 1m}
`

// left is what a claim has left.
func (s *server) left(name, limit, key string) int64 {
	s.t.Helper()
	a := s.post("/v1/peek", fmt.Sprintf(`{"claims":[{"name":%q,"limit":%q,"key":%q}]}`, name, limit, key))
	n, ok := a.at("remaining").(float64)
	if !ok {
		s.t.Fatalf("peek: %d %s", a.status, a.text)
	}
	return int64(n)
}

func (s *server) tokens(user string) int64 {
	return s.left("tokens", "fixed_window 1000/1h", fmt.Sprintf("user=%d:%s", len(user), user))
}

func settle(token any, actual int) string {
	return fmt.Sprintf(`{"token":%q,"actual":%d}`, token, actual)
}

func tokenOf(token any) string { return fmt.Sprintf(`{"token":%q}`, token) }

func TestReservationIsSettledOnce(t *testing.T) {
	s := start(t, tokenRules)
	for i, test := range []struct{ estimate, actual int }{{300, 120}, {300, 300}, {10, 700}, {500, 0}, {0, 7}} {
		user := fmt.Sprint("u", i)
		a := s.post("/v1/reserve", fmt.Sprintf(`{"claims":[{"name":"tokens","limit":"fixed_window `+
			`1000/1h","key":"user=2:%s"}],"cost":%d,"ttl":"30m"}`, user, test.estimate))
		a.has(t, 200, "allowed", true, "remaining", 1000-test.estimate, "reservation.ttl_us", 30*60*1000000,
			"checks.1", nil, "lease", nil)
		token := a.at("reservation.token")
		s.post("/v1/settle", settle(token, test.actual)).has(t, 200, "settled", true, "actual", test.actual)
		if left := s.tokens(user); left != int64(1000-test.actual) {
			t.Errorf("%+v: %d are left", test, left)
		}
		for _, again := range []int{test.actual, 0, 5} {
			s.post("/v1/settle", settle(token, again)).has(t, 409, "title", "Conflict")
		}
		if left := s.tokens(user); left != int64(1000-test.actual) {
			t.Errorf("%+v: %d are left after a second settle", test, left)
		}
	}
}

// A reservation that waits in a queue and is cancelled frees no place for which another one waits.
func TestCancelledReservationKeepsLaterDelays(t *testing.T) {
	var now atomic.Int64
	now.Store(1_790_000_000_000_000)
	s := serve(t, handler(t, memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(now.Load()) })), "rules: []"))
	const body = `{"claims":[{"name":"q","limit":"leaky_queue 1/1s queue 5","key":"k"}]}`
	s.post("/v1/reserve", body).has(t, 200, "delay_us", 0)
	middle := s.post("/v1/reserve", body)
	last := s.post("/v1/reserve", body)
	last.has(t, 200, "delay_us", 2_000_000)
	s.post("/v1/settle", settle(middle.at("reservation.token"), 0)).has(t, 200)
	s.post("/v1/peek", body).has(t, 200, "remaining", 3)
	s.post("/v1/settle", settle(last.at("reservation.token"), 0)).has(t, 200)
	s.post("/v1/peek", body).has(t, 200, "remaining", 4)
}

// TestRepeatedRequestsAreChargedOnce: a reservation is settled by its first answer, and at 0 units its id is free.
func TestRepeatedRequestsAreChargedOnce(t *testing.T) {
	s := start(t, "rules: []")
	const limit = `"claims":[{"name":"sms","limit":"fixed_window 9/1h","key":"u"}],"cost":2`
	first := s.post("/v1/reserve", `{`+limit+`,"id":"a","for":"1h"}`)
	first.has(t, 200, "remaining", 7, "repeated", nil)
	again := s.post("/v1/reserve", `{`+limit+`,"id":"a"}`)
	again.has(t, 200, "allowed", true, "granted", 1, "remaining", 7, "repeated", true, "reservation", nil)
	s.post("/v1/decide", `{"requests":[{`+limit+`,"id":"b"},{`+limit+`,"id":"b"}]}`).has(t, 200,
		"answers.0.remaining", 5, "answers.0.repeated", nil, "answers.1.remaining", 5, "answers.1.repeated", true)
	s.post("/v1/settle", settle(first.at("reservation.token"), 3)).has(t, 200)
	s.post("/v1/decide", `{`+limit+`,"id":"a"}`).has(t, 200, "remaining", 4, "repeated", true)

	canceled := s.post("/v1/reserve", `{`+limit+`,"id":"c"}`)
	s.post("/v1/settle", settle(canceled.at("reservation.token"), 0)).has(t, 200)
	s.post("/v1/decide", `{`+limit+`,"id":"c"}`).has(t, 200, "remaining", 2, "repeated", nil)
	for _, wrong := range []string{`"id":""`, `"for":"10m"`, `"id":"a","for":"25h"`, `"id":"a","for":"10m epoch"`,
		`"id":"a","times":2`} {
		s.post("/v1/decide", `{`+limit+`,`+wrong+`}`).has(t, 400)
	}
}

func TestRefusedReservationChargesNothing(t *testing.T) {
	s := start(t, tokenRules)
	s.post("/v1/reserve", `{"claims":[{"name":"tokens","limit":"fixed_window `+
		`1000/1h","key":"user=1:u"}],"cost":1001}`).has(t, 200, "allowed", false, "retry_after", -1, "reservation", nil)
	if left := s.tokens("u"); left != 1000 {
		t.Errorf("%d are left", left)
	}
}

func TestReservationExpires(t *testing.T) {
	var now atomic.Int64
	now.Store(1_790_000_000_000_000)
	store := memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(now.Load()) }))
	s := serve(t, handler(t, store, tokenRules))
	const body = `{"claims":[{"name":"tokens","limit":"fixed_window 1000/1h","key":"user=1:u","cost":400}],"ttl":"1m"}`
	early, late := s.post("/v1/reserve", body).at("reservation.token"), s.post("/v1/reserve",
		body).at("reservation.token")
	now.Add(60_000_000 - 1)
	s.post("/v1/settle", settle(early, 0)).has(t, 200)
	now.Add(1)
	s.post("/v1/settle", settle(late, 0)).has(t, 409)
	if left := s.tokens("u"); left != 600 {
		t.Errorf("%d are left, want the estimate of the late one charged", left)
	}
	for _, ttl := range []string{"999ms", "7d1h", "169h", "1", "x", "1h extra", "-1h"} {
		s.post("/v1/reserve", fmt.Sprintf(`{"request":{},"ttl":%q}`, ttl)).has(t, 400, "field", "ttl")
	}
}

// TestMaximumOfReservedClaims: it has one claim more, and an id one more, which the error does not leave to be guessed.
func TestMaximumOfReservedClaims(t *testing.T) {
	s := serve(t, newWitness(t, handler(t, memstore.New(), "rules: []")))
	claims := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"name":"a%d","limit":"9/1h","key":"k"}`, i))
		}
		return `{"claims":[` + strings.Join(list, ",") + `]`
	}
	s.post("/v1/reserve", claims(32)+"}").has(t, 400, "allowed", "at most 31 elements")
	s.post("/v1/reserve", claims(31)+`,"id":"x"}`).has(t, 400, "field", "claims", "value", "31", "allowed", "at most 30 beside an id")
	for _, body := range []string{claims(31) + "}", claims(30) + `,"id":"x"}`} {
		reserved := s.post("/v1/reserve", body)
		s.post("/v1/settle", settle(reserved.at("reservation.token"), 0)).has(t, 200)
	}
	if left := s.left("a30", "9/1h", "k"); left != 9 {
		t.Errorf("%d are left", left)
	}
}

// Of a reservation with leases and fixed claims, settle ends the first and leaves the second.
func TestSettleKeepsFixedClaims(t *testing.T) {
	s := start(t, tokenRules)
	a := s.post("/v1/reserve", `{"claims":[
		{"name":"requests","limit":"fixed_window 10/1h","key":"u","cost":1,"fixed":true},
		{"name":"tokens","limit":"fixed_window 1000/1h","key":"user=1:u"},
		{"name":"streams","limit":"concurrency 1 ttl 1m","key":"u","cost":1}],"cost":200}`)
	a.has(t, 200, "allowed", true, "lease", nil)
	if s.left("streams", "concurrency 1 ttl 1m", "u") != 0 {
		t.Error("the stream is not held")
	}
	s.post("/v1/settle", settle(a.at("reservation.token"), 50)).has(t, 200)
	if r, k, c := s.left("requests", "fixed_window 10/1h", "u"), s.tokens("u"), s.left("streams",
		"concurrency 1 ttl 1m", "u"); r != 9 || k != 950 || c != 1 {
		t.Errorf("left: %d requests, %d tokens, %d streams", r, k, c)
	}
}

// A release by a token counts for the usual time held, which refused callers are told.
func TestRefusedCallersAreToldTheUsualTimeHeld(t *testing.T) {
	var now atomic.Int64
	now.Store(1_790_000_000_000_000)
	s := serve(t, handler(t, memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(now.Load()) })), tokenRules))
	const acquire, chat = "/v1/acquire?deny_status=429", `{"request":{"path":"/chat","user":"u"}}`
	first := s.post(acquire, chat)
	s.post(acquire, chat).has(t, 200, "allowed", true)
	s.post(acquire, chat).has(t, 429, "retry_after", 6, "retry_after_us", 60_000_000)
	now.Add(20_000_000)
	s.post(acquire, chat).has(t, 429, "retry_after", 6, "retry_after_us", 40_000_000)
	s.post("/v1/release", tokenOf(first.at("lease.token"))).has(t, 200)
	s.post(acquire, chat).has(t, 200, "allowed", true)
	refused := s.post(acquire, chat)
	refused.has(t, 429, "retry_after_us", 40_000_000)
	// The time between the release and the refusal before it is the machine's.
	if wait := refused.at("retry_after").(float64); wait < 20 || refused.header.Get("Retry-After") != fmt.Sprint(wait) {
		t.Errorf("retry_after is %v, Retry-After %s; want 20 or more", wait, refused.header.Get("Retry-After"))
	}
}

func TestLeases(t *testing.T) {
	for _, path := range []string{"/v1/acquire", "/v1/decide"} {
		t.Run(path, func(t *testing.T) {
			var now atomic.Int64
			now.Store(1_790_000_000_000_000)
			s := serve(t, handler(t, memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(now.Load()) })), tokenRules))
			const chat = `{"request":{"path":"/chat","user":"u"}}`
			first := s.post(path, chat)
			first.has(t, 200, "allowed", true, "lease.ttl_us", 60_000_000)
			second := s.post(path, chat)
			s.post(path, chat).has(t, 200, "allowed", false, "rule", "slots", "lease", nil)
			s.post("/v1/release", tokenOf(first.at("lease.token"))).has(t, 200, "released", true)
			s.post("/v1/release", tokenOf(first.at("lease.token"))).has(t, 409)
			third := s.post(path, chat)
			third.has(t, 200, "allowed", true)
			now.Add(40_000_000)
			s.post("/v1/renew", tokenOf(second.at("lease.token"))).has(t, 200, "renewed", true, "ttl_us", 60_000_000)
			now.Add(40_000_000)
			s.post("/v1/renew", tokenOf(third.at("lease.token"))).has(t, 409)
			s.post("/v1/renew", tokenOf(second.at("lease.token"))).has(t, 200)
			if left := s.tokens("u"); left != 997 {
				t.Errorf("%d tokens are left, want 997: windows keep what they counted", left)
			}
		})
	}
}

// TestRenewKeepsSlotsOfAReservation: a response may take longer than the time-to-live of the slot that it holds.
func TestRenewKeepsSlotsOfAReservation(t *testing.T) {
	var now atomic.Int64
	now.Store(1_790_000_000_000_000)
	s := serve(t, handler(t, memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(now.Load()) })), tokenRules))
	const chat = `{"request":{"path":"/chat","user":"u"}}`
	token := s.post("/v1/reserve", chat).at("reservation.token")
	for range 5 {
		now.Add(40_000_000)
		s.post("/v1/renew", tokenOf(token)).has(t, 200, "renewed", true, "ttl_us", 60_000_000)
	}
	s.post("/v1/peek", chat).has(t, 200, "checks.1.remaining", 1)
	s.post("/v1/settle", settle(token, 7)).has(t, 200)
	s.post("/v1/peek", chat).has(t, 200, "checks.0.remaining", 993, "checks.1.remaining", 2)
	s.post("/v1/renew", tokenOf(token)).has(t, 409)
}

func TestRepeatedAcquireKeepsLease(t *testing.T) {
	s := start(t, "rules: []")
	const body = `{"claims":[{"name":"jobs","limit":"concurrency 1 ttl ` +
		`1m","key":"k"}],"lease":"b1946ac92492d2347c6235b4d2611184"}`
	s.post("/v1/acquire", body).has(t, 200, "allowed", true, "lease.id", "b1946ac92492d2347c6235b4d2611184")
	again := s.post("/v1/acquire", body)
	again.has(t, 200, "allowed", true)
	s.post("/v1/acquire", `{"claims":[{"name":"jobs","limit":"concurrency 1 ttl 1m","key":"k"}]}`).has(t, 200,
		"allowed", false)
	s.post("/v1/release", tokenOf(again.at("lease.token"))).has(t, 200)
	s.post("/v1/acquire", `{"claims":[{"name":"jobs","limit":"1/1m","key":"k"}]}`).has(t, 200, "allowed", true,
		"lease", nil)
}

func TestInvalidTokensAreRefused(t *testing.T) {
	s := start(t, tokenRules)
	reserved := s.post("/v1/reserve", `{"request":{"path":"/chat","user":"u"}}`).at("reservation.token").(string)
	held := s.post("/v1/acquire", `{"request":{"path":"/chat","user":"u"}}`).at("lease.token").(string)
	s.post("/v1/settle", settle(held, 0)).has(t, 400, "field", "token")
	s.post("/v1/release", tokenOf(reserved)).has(t, 400, "field", "token")
	window := s.post("/v1/reserve", `{"claims":[{"name":"a","limit":"5/1m","key":"k"}]}`).at("reservation.token")
	s.post("/v1/renew", tokenOf(window)).has(t, 400, "field", "token", "value", "one without a lease")
	s.post("/v1/settle", tokenOf(reserved)).has(t, 400, "field", "actual")
	s.post("/v1/settle", `{"actual":1}`).has(t, 400, "field", "token")
	plain, err := base64.RawURLEncoding.DecodeString(held)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"another version":  {`"v":1`, `"v":2`},
		"an unknown field": {`"v":1`, `"v":1,"x":1`},
		"one field twice":  {`"v":1`, `"v":1,"v":1`},
		"no limit":         {`"l":"concurrency 2 ttl 1m"`, `"l":""`},
		"another limit":    {`"l":"concurrency 2 ttl 1m"`, `"l":"5/1m"`},
		"a negative cost":  {`"q":1`, `"q":-1`},
		"a large cost":     {`"q":1`, `"q":9007199254740993`},
		"no name":          {`"n":"slots"`, `"n":""`},
		"before 1970":      {`"t":1`, `"t":-1`},
		"something more":   {`}]}`, `}]}{}`},
		"no claim":         {string(plain), `{"v":1,"c":[]}`},
		"null":             {string(plain), `null`},
		"nothing":          {string(plain), ``},
	} {
		changed := strings.Replace(string(plain), change[0], change[1], 1)
		if changed == string(plain) {
			t.Fatalf("%s: %q is not in %s", name, change[0], plain)
		}
		a := s.post("/v1/release", tokenOf(base64.RawURLEncoding.EncodeToString([]byte(changed))))
		if a.status != 400 {
			t.Errorf("%s: %d %s", name, a.status, a.text)
		}
	}
	for _, text := range []string{held + "=", held[:len(held)-1], "!" + held, held + "\n"} {
		s.post("/v1/release", tokenOf(text)).has(t, 400)
	}
	s.post("/v1/release", tokenOf(held)).has(t, 200)
	// A long key is held as its hash.
	long := strings.Repeat("k", 64<<10)
	a := s.post("/v1/reserve", fmt.Sprintf(`{"claims":[{"name":"a","limit":"5/1m","key":"%s"}]}`, long))
	s.post("/v1/settle", settle(a.at("reservation.token"), 0)).has(t, 200)
}

func FuzzToken(f *testing.F) {
	s := handler(f, memstore.New(), tokenRules)
	for _, path := range []string{"/v1/reserve", "/v1/acquire"} {
		r := httptest.NewRequest("POST", path, strings.NewReader(`{"request":{"path":"/chat","user":"u"}}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		token, _, _ := strings.Cut(strings.SplitAfter(w.Body.String(), `"token":"`)[1], `"`)
		plain, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(plain)
	}
	f.Add([]byte(`{"v":1,"c":[{"n":"a","l":"concurrency 1 ttl 1m","k":"aw==","q":1,"t":1,"e":"x"}]}`))
	f.Add([]byte(`{"v":1,"r":"x","ttl":"1m","t":1,"c":[{"n":"tokens","l":"5/1m","k":"aw==","q":1,"t":1,"u":"tokens","p":3,"a":"bQ=="}]}`))
	f.Add([]byte(`{"v":1,"c":[{"n":"a","l":"fair_concurrency 9 ttl 1m above 0","k":"aw==","q":1,"t":1,"e":"x","m":"bQ==","w":1000}]}`))
	f.Fuzz(func(t *testing.T, plain []byte) {
		for _, path := range []string{"/v1/settle", "/v1/renew", "/v1/release"} {
			body := tokenOf(base64.RawURLEncoding.EncodeToString(plain))
			if path == "/v1/settle" {
				body = settle(base64.RawURLEncoding.EncodeToString(plain), 1)
			}
			if status := ask(t, s, path, body); status != 200 && status != 400 && status != 409 {
				t.Errorf("%s %q: %d", path, plain, status)
			}
		}
	})
}

// TestSettleByResponse: the status of a response keeps or gives back the units of rules with count_if, and bans.
func TestSettleByResponse(t *testing.T) {
	s := start(t, `
rules:
  - name: login
    key: [user]
    count_if: {status: 4xx, header: {X-Login: failed}}
    limit: sliding_log 20/1h
    ban: {after: 3 counted within 1h, for: 10m}
`)
	const login = `{"request":{"user":"ann"}}`
	for i, test := range []struct {
		member string
		left   int
	}{
		{`"status":401,"headers":{"x-login":"failed"}`, 19},
		{`"status":401`, 19},
		{`"status":200,"headers":{"X-Login":"failed"}`, 19},
		{`"status":0`, 18},
		{`"actual":0`, 18},
		{`"actual":1`, 17}, // no ban counts it
		{`"actual":5,"status":400,"headers":{"X-LOGIN":"failed"}`, 12},
	} {
		token := s.post("/v1/reserve", login).at("reservation.token")
		body := fmt.Sprintf(`{"token":%q,%s}`, token, test.member)
		s.post("/v1/settle", body).has(t, 200, "settled", true)
		s.post("/v1/settle", body).has(t, 409)
		if left := s.left("login", "sliding_log 20/1h", "user=3:ann"); left != int64(test.left) {
			t.Errorf("settle %d by %s: %d are left, want %d", i, test.member, left, test.left)
		}
	}
	s.post("/v1/decide", login).has(t, 200, "outcome", "refused", "reason", "banned", "retry_after", 600)
	s.post("/v1/settle", `{"token":"a"}`).has(t, 400, "field", "actual")
	s.post("/v1/settle", `{"token":"a","actual":1,"headers":{"A":"b"}}`).has(t, 400, "field", "headers")
	s.post("/v1/settle", `{"token":"a","status":600}`).has(t, 400, "field", "status")
}
