package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"text/template"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/webtest"
	"github.com/weirproject/weir/memstore"
)

// A clock is the clock of a store.
type clock struct{ now atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.now.Store(1_790_000_000_250_000)
	return c
}

func (c *clock) store() weir.Store {
	return memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(c.now.Load()) }))
}

func (c *clock) pass(d time.Duration) { c.now.Add(d.Microseconds()) }

func limiter(t *testing.T, store weir.Store, specs ...weir.Spec) *weir.Limiter {
	t.Helper()
	l, err := weir.New(store, "api", specs...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

type middleware = func(http.Handler) http.Handler

func perAddress(t *testing.T, l *weir.Limiter, options *httplimit.Options) middleware {
	t.Helper()
	m, err := httplimit.New(l, httplimit.PeerAddress, options)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func together(t *testing.T, store weir.Store, parts []httplimit.Part, options *httplimit.Options) middleware {
	t.Helper()
	m, err := httplimit.Together(store, parts, options)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })

// A reply is a completely read response.
type reply struct {
	*http.Response
	text string
}

func (r *reply) want(t *testing.T, status int, fields map[string]string) {
	t.Helper()
	if r.StatusCode != status {
		t.Errorf("the status is %d, want %d: %s", r.StatusCode, status, r.text)
	}
	for name, want := range fields {
		if got := strings.Join(r.Header.Values(name), " | "); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// A site is a handler behind middleware on a real socket.
type site struct {
	t   *testing.T
	url string
}

func serve(t *testing.T, handler http.Handler) *site {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &site{t: t, url: server.URL}
}

func (s *site) get(path string, fields ...string) *reply {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response, text := webtest.Send(s.t, http.DefaultClient, request, fields...)
	return &reply{response, text}
}

// Draft 11, sections 3 to 5.1; RFC 9110, section 10.2.3; RFC 6585, section 4.
func TestRefusal(t *testing.T) {
	c := newClock()
	s := serve(t, perAddress(t, limiter(t, c.store(), weir.SlidingLog{Limit: 2, Window: 90 * time.Second}), nil)(hello))
	policy := `"api";q=2;w=90`
	s.get("/").want(t, 200, map[string]string{"RateLimit-Policy": policy, "RateLimit": `"api";r=1;t=90`, "Retry-After": ""})
	c.pass(300 * time.Millisecond)
	s.get("/").want(t, 200, map[string]string{"RateLimit": `"api";r=0;t=90`, "Retry-After": ""})
	c.pass(300 * time.Millisecond) // 89.4 s remain
	refused := s.get("/")
	refused.want(t, 429, map[string]string{
		"RateLimit-Policy": policy, "RateLimit": `"api";r=0;t=90`, "Retry-After": "90",
		"Cache-Control": "no-store", "Content-Type": "application/problem+json", "Content-Language": "en",
	})
	var problem map[string]any
	if err := json.Unmarshal([]byte(refused.text), &problem); err != nil {
		t.Fatal(err)
	}
	id := refused.Header.Get("X-Request-Id")
	want := `map[detail:Too many requests: try again in 1 minute 30 seconds. instance:urn:weir:request:` + id + ` status:429 title:Request cannot be satisfied as assigned quota has been exceeded type:https://iana.org/assignments/http-problem-types#quota-exceeded violated-policies:[api]]`
	if got := fmt.Sprint(problem); got != want {
		t.Errorf("the body is %s\nwant %s", got, want)
	}
	c.pass(90 * time.Second)
	s.get("/").want(t, 200, nil)
}

// items parses fields with an independent parser.
func items(t *testing.T, lines []string) map[string]map[string]any {
	t.Helper()
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		t.Fatalf("%q: %v", lines, err)
	}
	all := make(map[string]map[string]any)
	for _, member := range list {
		item := member.(httpsfv.Item)
		all[item.Value.(string)] = make(map[string]any)
		for _, key := range item.Params.Names() {
			all[item.Value.(string)][key], _ = item.Params.Get(key)
		}
	}
	return all
}

func TestSeveralPoliciesParseWithHttpsfv(t *testing.T) {
	c := newClock()
	parts := []httplimit.Part{
		{Key: httplimit.Constant("GLOBAL"), Limits: []*weir.Limit{weir.MustLimit("site", weir.PerSecond(1000))}},
		{Key: httplimit.PeerAddress, Limits: []*weir.Limit{
			weir.MustLimit("ip", weir.FixedWindow{Limit: 1, Window: 1500 * time.Millisecond}),
			weir.MustLimit("ip.day", weir.Calendar{Limit: weir.MaxUnits, Unit: weir.Day}),
		}},
	}
	pk := func(_ *weir.Limit, key string) []byte { return []byte(strings.TrimPrefix(key, "GLOBAL")) }
	s := serve(t, together(t, c.store(), parts, &httplimit.Options{PartitionKey: pk})(hello))
	for _, status := range []int{200, 429} {
		r := s.get("/")
		r.want(t, status, nil)
		policies, limits := items(t, r.Header.Values("RateLimit-Policy")), items(t, r.Header.Values("RateLimit"))
		if got := fmt.Sprint(policies); got != "map[ip:map[pk:[105 112 58 49 50 55 46 48 46 48 46 49] q:1 w:2]"+
			" ip.day:map[pk:[105 112 58 49 50 55 46 48 46 48 46 49] q:999999999999999 w:86400] site:map[q:1000 w:1]]" {
			t.Errorf("RateLimit-Policy is %s", got)
		}
		if len(limits) != 3 || limits["ip"]["r"] != int64(0) || limits["ip"]["t"] != int64(2) || limits["site"]["r"] != int64(999) {
			t.Errorf("%d: RateLimit is %v", status, limits)
		}
		// Draft 11, section 6: Retry-After is not before the end of an effective window.
		for name, limit := range limits {
			if _, has := limit["t"]; has != (status == 200 || name == "ip") {
				t.Errorf("%d: %s has t: %v", status, name, has)
			}
		}
	}
}

// TestPartitionKeysMayShareABuffer: each limit keeps its own partition key.
func TestPartitionKeysMayShareABuffer(t *testing.T) {
	parts := []httplimit.Part{
		{Key: httplimit.Constant("one"), Limits: []*weir.Limit{weir.MustLimit("a", weir.PerSecond(10))}},
		{Key: httplimit.Constant("two"), Limits: []*weir.Limit{weir.MustLimit("b", weir.PerSecond(10))}},
	}
	var buffer []byte
	pk := func(_ *weir.Limit, key string) []byte {
		buffer = append(buffer[:0], key...)
		return buffer
	}
	s := serve(t, together(t, newClock().store(), parts, &httplimit.Options{PartitionKey: pk})(hello))
	policies := items(t, s.get("/").Header.Values("RateLimit-Policy"))
	for limit, key := range map[string]string{"a": "one", "b": "two"} {
		if got := fmt.Sprintf("%s", policies[limit]["pk"]); got != key {
			t.Errorf("the partition key of %s is %q, want %q", limit, got, key)
		}
	}
}

func TestPolicies(t *testing.T) {
	for want, spec := range map[string]weir.Spec{
		`"api";q=20;w=2`:                        weir.GCRA(20, 10, time.Second),
		`"api";q=15;w=2`:                        weir.Borrowing(10, 10, time.Second, 5),
		`"api";q=7;w=5`:                         weir.TokenBucket{Capacity: 7, Refill: 3, Period: 2 * time.Second},
		`"api";q=2`:                             weir.TokenBucket{Capacity: 2, Refill: 3, Period: time.Second},
		`"api";q=3;w=4`:                         weir.TokenBucket{Capacity: 3, Refill: 2, Period: 2 * time.Second, Mode: weir.Step},
		`"api";q=3`:                             weir.FixedWindow{Limit: 3, Window: time.Second - time.Microsecond},
		`"api";q=4;w=2`:                         weir.SlidingCounter{Limit: 4, Window: 1200 * time.Millisecond, Slices: 1},
		`"api";q=9;w=604800`:                    weir.Calendar{Limit: 9, Unit: weir.Week},
		`"api";q=9`:                             weir.Calendar{Limit: 9, Unit: weir.Month},
		`"api";q=5;qu="concurrent-requests"`:    weir.Concurrency{Limit: 5, TTL: time.Minute},
		`"api";q=1;w=60, "api.2";q=1000;w=3600`: nil,
	} {
		specs := []weir.Spec{spec}
		if spec == nil {
			specs = []weir.Spec{weir.PerMinute(1), weir.FixedWindow{Limit: 1000, Window: time.Hour}}
		}
		r := httptest.NewRecorder()
		perAddress(t, limiter(t, memstore.New(), specs...), nil)(hello).ServeHTTP(r, httptest.NewRequest("GET", "/", nil))
		if got := r.Header().Get("RateLimit-Policy"); got != want {
			t.Errorf("%v: %s, want %s", specs, got, want)
		}
		items(t, r.Header().Values("RateLimit-Policy"))
	}
}

func TestRetryAfterIsNeverTooEarly(t *testing.T) {
	for _, window := range []time.Duration{time.Microsecond, 999_999 * time.Microsecond, time.Second, 1_000_001 * time.Microsecond, 1500 * time.Millisecond} {
		c := newClock()
		s := serve(t, perAddress(t, limiter(t, c.store(), weir.SlidingLog{Limit: 1, Window: window}), nil)(hello))
		s.get("/").want(t, 200, nil)
		refused := s.get("/")
		wait := max(1, (window+time.Second-1)/time.Second)
		refused.want(t, 429, map[string]string{"Retry-After": fmt.Sprint(int64(wait))})
		c.pass(wait * time.Second)
		s.get("/").want(t, 200, nil)
	}
}

func TestXRateLimitFields(t *testing.T) {
	for _, tt := range []struct {
		fields        httplimit.Fields
		first, second string
	}{
		{httplimit.Seconds, "2", "2"},
		{httplimit.UnixTime, "1790000002", "1790000002"},
		{httplimit.NoFields, "", ""},
	} {
		c := newClock()
		l := limiter(t, c.store(), weir.FixedWindow{Limit: 1, Window: 1500 * time.Millisecond})
		s := serve(t, perAddress(t, l, &httplimit.Options{Fields: tt.fields})(hello))
		want := func(r *reply, status int, reset, retry string) {
			fields := map[string]string{"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset, "Retry-After": retry, "RateLimit": "", "RateLimit-Policy": ""}
			if reset == "" {
				fields["X-RateLimit-Limit"], fields["X-RateLimit-Remaining"] = "", ""
			}
			r.want(t, status, fields)
		}
		want(s.get("/"), 200, tt.first, "")
		c.pass(100 * time.Millisecond)
		want(s.get("/"), 429, tt.second, "2")
	}
}

// standIn marks its decisions like the local store of layers, by a negative instant.
type standIn struct{ weir.Store }

func (s standIn) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	granted, err := s.Store.Decide(ctx, claims, times, decisions)
	for i := range decisions {
		decisions[i].At = -decisions[i].At
	}
	return granted, err
}

func TestUnixTimeOfAFallbackDecision(t *testing.T) {
	l := limiter(t, standIn{newClock().store()}, weir.FixedWindow{Limit: 1, Window: 1500 * time.Millisecond})
	s := serve(t, perAddress(t, l, &httplimit.Options{Fields: httplimit.UnixTime})(hello))
	s.get("/").want(t, 200, map[string]string{"X-RateLimit-Reset": "1790000002"})
}

func TestBodies(t *testing.T) {
	page := template.Must(template.New("").Parse(`{{.Status}} {{.RetryAfter}} {{.Wait}} {{.Violated}} {{.Answer.Limit.Name}} {{.Message}}`))
	broken := template.Must(template.New("").Parse(`{{.NoSuch}}`))
	for _, tt := range []struct{ body, language, kind, want string }{
		{"plain", "", "application/json", `{"code":429,"message":"Too many requests: try again in 1 minute.","retry_after":60}` + "\n"},
		{"plain", "zh-CN,en;q=0.5", "application/json", `{"code":429,"message":"请求过于频繁，请在1分钟后重试。","retry_after":60}` + "\n"},
		{"page", "", "text/html", "429 60 1m0s [api] api Too many requests: try again in 1 minute."},
		{"broken", "", "text/plain; charset=utf-8", "Too many requests: try again in 1 minute.\n"},
	} {
		bodies := map[string]httplimit.Body{
			"plain": httplimit.PlainJSON, "page": httplimit.Template("text/html", page), "broken": httplimit.Template("text/html", broken),
		}
		l := limiter(t, newClock().store(), weir.SlidingLog{Limit: 1, Window: time.Minute})
		s := serve(t, perAddress(t, l, &httplimit.Options{Body: bodies[tt.body]})(hello))
		s.get("/")
		r := s.get("/", "Accept-Language", tt.language)
		r.want(t, 429, map[string]string{"Content-Type": tt.kind})
		if r.text != tt.want {
			t.Errorf("%s: %q, want %q", tt.body, r.text, tt.want)
		}
	}
}

func TestLanguages(t *testing.T) {
	l := limiter(t, newClock().store(), weir.SlidingLog{Limit: 1, Window: time.Minute})
	s := serve(t, perAddress(t, l, nil)(hello))
	s.get("/")
	for fields, want := range map[string]string{
		"": "en", "zh": "zh", "ZH-hant-TW": "zh", "en, zh": "en", "zh, en": "zh", "en;q=0.8, zh;q=0.9": "zh",
		"fr, zh;q=0.1": "zh", "zh;q=0": "en", "zh;q=2": "en", "zh;q=NaN, en;q=0.1": "en", "*, zh;q=0.5": "en", "zhx": "en",
		"zh ; q=0.9 | en;q=0.3": "zh", ";;,=": "en", "zh;q=": "en",
		"zh" + strings.Repeat(",", 3000): "en", // a refusal must stay cheap
	} {
		var header []string
		for field := range strings.SplitSeq(fields, " | ") {
			header = append(header, "Accept-Language", field)
		}
		if got := s.get("/", header...).Header.Get("Content-Language"); got != want {
			t.Errorf("%q: %s, want %s", fields, got, want)
		}
	}
}

// A cost of 3 never fits a limit of 2: 429 without Retry-After.
func TestCostAboveTheLimit(t *testing.T) {
	cost := func(*http.Request) int64 { return 3 }
	l := limiter(t, newClock().store(), weir.SlidingLog{Limit: 2, Window: time.Minute})
	for name, body := range map[string]httplimit.Body{"problem": httplimit.Problem, "plain": httplimit.PlainJSON} {
		r := serve(t, perAddress(t, l, &httplimit.Options{Cost: cost, Body: body})(hello)).get("/")
		r.want(t, 429, map[string]string{"Retry-After": "", "RateLimit": `"api";r=2`})
		if !strings.Contains(r.text, "waiting does not help") || strings.Contains(r.text, "retry_after") {
			t.Errorf("%s: %s", name, r.text)
		}
	}
	triple := serve(t, perAddress(t, l, &httplimit.Options{Cost: cost, Fields: httplimit.Seconds})(hello)).get("/")
	triple.want(t, 429, map[string]string{"Retry-After": "", "X-RateLimit-Remaining": "2", "X-RateLimit-Reset": "0"})
}

// Fields of an upstream and of outer middleware are kept.
func TestExistingFieldsAreKept(t *testing.T) {
	c := newClock()
	upstream := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("RateLimit", `"upstream";r=5`)
		w.Header().Add("RateLimit-Policy", `"upstream";q=6`)
	})
	inner := perAddress(t, limiter(t, c.store(), weir.PerMinute(10)), nil)
	outerLimiter, err := weir.New(c.store(), "outer", weir.PerMinute(1))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, perAddress(t, outerLimiter, nil)(inner(upstream)))
	s.get("/").want(t, 200, map[string]string{
		"RateLimit":        `"outer";r=0;t=60 | "api";r=9;t=6 | "upstream";r=5`,
		"RateLimit-Policy": `"outer";q=1;w=60 | "api";q=10;w=60 | "upstream";q=6`,
	})
	// Fields added to one response do not appear in the next.
	s.get("/").want(t, 429, map[string]string{"RateLimit-Policy": `"outer";q=1;w=60`})
}

func TestTheResponseWriterIsNotWrapped(t *testing.T) {
	recorder := httptest.NewRecorder()
	perAddress(t, limiter(t, memstore.New(), weir.PerMinute(1)), nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if w != http.ResponseWriter(recorder) {
			t.Errorf("the handler got a %T of another make", w)
		}
	})).ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
}

func TestMissingKeys(t *testing.T) {
	for _, tt := range []struct {
		missing httplimit.Missing
		status  [3]int // twice without a key, then with one
		outcome httplimit.Outcome
	}{
		{httplimit.Anonymous, [3]int{200, 429, 200}, httplimit.Refused},
		{httplimit.Skip, [3]int{200, 200, 200}, httplimit.Skipped},
		{httplimit.Deny, [3]int{403, 403, 200}, httplimit.Denied},
	} {
		var last httplimit.Event
		options := &httplimit.Options{Missing: tt.missing, Observe: func(_ *http.Request, e httplimit.Event) { last = e }}
		store := newClock().store()
		one, err := httplimit.New(limiter(t, store, weir.PerMinute(1)), httplimit.Header("X-Key"), options)
		if err != nil {
			t.Fatal(err)
		}
		limit := weir.MustLimit("parts", weir.PerMinute(1))
		parts := together(t, store, []httplimit.Part{{Key: httplimit.Header("x-key"), Limits: []*weir.Limit{limit}, Missing: tt.missing}}, options)
		for name, m := range map[string]middleware{"New": one, "Together": parts} {
			s := serve(t, m(hello))
			s.get("/").want(t, tt.status[0], nil)
			s.get("/").want(t, tt.status[1], nil)
			if last.Outcome != tt.outcome || (tt.missing == httplimit.Deny) != errors.Is(last.Err, httplimit.ErrMissing) {
				t.Errorf("%s, %v: the observer saw %+v", name, tt.missing, last)
			}
			s.get("/", "X-Key", "k").want(t, tt.status[2], map[string]string{"Retry-After": ""})
		}
	}
}

// The fields omit a skipped part, which does not apply.
func TestSkippedPartHasNoFields(t *testing.T) {
	parts := []httplimit.Part{
		{Key: httplimit.Constant("GLOBAL"), Limits: []*weir.Limit{weir.MustLimit("site", weir.PerMinute(9))}},
		{Key: httplimit.Header("X-Key"), Limits: []*weir.Limit{weir.MustLimit("key", weir.PerMinute(3))}, Missing: httplimit.Skip},
	}
	s := serve(t, together(t, newClock().store(), parts, nil)(hello))
	s.get("/").want(t, 200, map[string]string{"RateLimit-Policy": `"site";q=9;w=60`, "RateLimit": `"site";r=8;t=7`})
	s.get("/", "X-Key", "k").want(t, 200, map[string]string{
		"RateLimit-Policy": `"site";q=9;w=60, "key";q=3;w=60`, "RateLimit": `"site";r=7;t=14, "key";r=2;t=20`,
	})
}

func TestPartCosts(t *testing.T) {
	parts := []httplimit.Part{
		{Key: httplimit.PeerAddress, Limits: []*weir.Limit{weir.MustLimit("requests", weir.PerMinute(6))}},
		{Key: httplimit.PeerAddress, Limits: []*weir.Limit{weir.MustLimit("bytes", weir.PerMinute(600))},
			Cost: func(r *http.Request) int64 { return int64(len(r.URL.Path)) }},
	}
	s := serve(t, together(t, newClock().store(), parts, &httplimit.Options{Cost: func(*http.Request) int64 { return 2 }})(hello))
	s.get("/23456789").want(t, 200, map[string]string{"RateLimit": `"requests";r=4;t=20, "bytes";r=591;t=1`})
}

func TestBodySetsContentLanguage(t *testing.T) {
	l := limiter(t, newClock().store(), weir.SlidingLog{Limit: 1, Window: time.Minute})
	s := serve(t, perAddress(t, l, &httplimit.Options{Body: func(r *http.Request, refusal *httplimit.Refusal) (string, []byte) {
		refusal.Language = r.Header.Get("Accept-Language")
		return "text/plain", []byte("Zu viel")
	}})(hello))
	s.get("/")
	s.get("/", "Accept-Language", "de").want(t, 429, map[string]string{"Content-Language": "de", "Content-Type": "text/plain"})
	s.get("/").want(t, 429, map[string]string{"Content-Language": ""})
}

func TestStoreErrors(t *testing.T) {
	for failure, status := range map[httplimit.Failure]int{httplimit.FailOpen: 200, httplimit.FailClosed: 503} {
		store := memstore.New()
		var seen error
		m := perAddress(t, limiter(t, store, weir.PerMinute(1)), &httplimit.Options{StoreErrors: failure, Observe: func(_ *http.Request, e httplimit.Event) { seen = e.Err }})
		store.Close()
		r := serve(t, m(hello)).get("/")
		r.want(t, status, map[string]string{"RateLimit": ""})
		if !errors.Is(seen, weir.ErrClosed) {
			t.Errorf("the observer saw %v", seen)
		}
		if status == 503 && !strings.Contains(r.text, `"about:blank","title":"Service Unavailable","status":503`) {
			t.Errorf("the body is %s", r.text)
		}
	}
}

// Errors that a client can cause must not let requests pass: an invalid cost, a canceled request.
func TestInvalidInputAndCanceledRequestsFailClosed(t *testing.T) {
	m := perAddress(t, limiter(t, memstore.New(), weir.PerMinute(1)), &httplimit.Options{Cost: func(*http.Request) int64 { return -1 }})
	serve(t, m(hello)).get("/").want(t, 500, nil)

	store := memstore.New()
	m = perAddress(t, limiter(t, store, weir.PerMinute(1)), nil)
	store.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRecorder()
	m(hello).ServeHTTP(r, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if r.Code != 503 {
		t.Errorf("a cancelled request is answered %d", r.Code)
	}
}

func TestLongKeyIsHashed(t *testing.T) {
	m, err := httplimit.New(limiter(t, newClock().store(), weir.PerMinute(1)), httplimit.Header("X-Key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	handler := m(hello)
	long := strings.Repeat("k", 100_000)
	for _, tt := range []struct {
		end  string
		want int
	}{{"a", 200}, {"a", 429}, {"b", 200}} {
		r := httptest.NewRecorder()
		request := httptest.NewRequest("GET", "/", nil)
		request.Header.Set("X-Key", long+tt.end)
		handler.ServeHTTP(r, request)
		if r.Code != tt.want {
			t.Errorf("%s: %d, want %d", tt.end, r.Code, tt.want)
		}
	}
}

func TestLeaseIsHeldWhileTheHandlerRuns(t *testing.T) {
	limit := weir.MustLimit("jobs", weir.Concurrency{Limit: 1, TTL: time.Hour})
	store := memstore.New()
	one, err := weir.NewLimiter(store, limit)
	if err != nil {
		t.Fatal(err)
	}
	parts := []httplimit.Part{{Key: httplimit.Constant("all"), Limits: []*weir.Limit{limit, weir.MustLimit("rate", weir.PerHour(1000))}}}
	for name, m := range map[string]middleware{"New": perAddress(t, one, nil), "Together": together(t, store, parts, nil)} {
		inside, leave := make(chan bool), make(chan bool)
		s := serve(t, m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/panic" {
				panic(http.ErrAbortHandler)
			}
			inside <- true
			<-leave
		})))
		entered := func() {
			select {
			case <-inside:
			case <-time.After(time.Minute):
				t.Fatalf("%s: no request passes: the lease is held", name)
			}
		}
		var done sync.WaitGroup
		done.Go(func() { s.get("/").want(t, 200, nil) })
		entered()
		s.get("/").want(t, 429, nil)
		leave <- true
		done.Wait()
		if response, err := http.Get(s.url + "/panic"); err == nil {
			response.Body.Close()
			t.Errorf("%s: a handler that panics answers %d", name, response.StatusCode)
		}
		done.Go(func() { s.get("/").want(t, 200, nil) })
		entered()
		leave <- true
		done.Wait()
	}
}

// A leaky queue spaces requests evenly; a request canceled during its delay is not served.
// net/http recovers from the panic of an observer, so a lease would be held to its time-to-live.
func TestObserversThatPanicHoldNoLease(t *testing.T) {
	panics := func(*http.Request, httplimit.Event) { panic("an observer") }
	store := memstore.New()
	l := limiter(t, store, weir.Concurrency{Limit: 1, TTL: time.Hour})
	one := func(*http.Request) (string, error) { return "k", nil }
	byLimiter, err := httplimit.New(l, one, &httplimit.Options{Observe: panics})
	if err != nil {
		t.Fatal(err)
	}
	const rule = "  - {name: a, limit: concurrency 1 ttl 1h}"
	observed := byRules(t, store, rule, &httplimit.RuleOptions{Observe: panics})
	for _, limit := range []middleware{byLimiter, observed} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			ask(limit(http.NotFoundHandler()), "GET", "/")
		}()
	}
	if a, _ := l.Peek(t.Context(), "k"); a.Remaining != 1 {
		t.Error("the lease of the limiter was not released")
	}
	if got := ask(byRules(t, store, rule, nil)(http.NotFoundHandler()), "GET", "/").Code; got != 404 {
		t.Errorf("answered %d, want 404: the lease of the rule was not released", got)
	}
}

func TestDelayIsSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := perAddress(t, limiter(t, memstore.New(), weir.LeakyQueue(1, time.Second, 5)), nil)(hello)
		start := time.Now()
		for i := range 3 {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			if passed := time.Since(start); passed != time.Duration(i)*time.Second {
				t.Errorf("request %d was served after %v", i, passed)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		r := httptest.NewRecorder()
		handler.ServeHTTP(r, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		if r.Code != 503 {
			t.Errorf("canceled request is answered %d", r.Code)
		}
	})
}

// TestLimitsOfARequest come from a database: a plan that is raised keeps its count, a missing one is denied, and errors
// of the database are those of a store. Several claims are one decision.
func TestLimitsOfARequest(t *testing.T) {
	var plan atomic.Int64
	plan.Store(2)
	away := errors.New("the database does not respond")
	whole := weir.MustLimit("site", weir.PerHour(6))
	claims := func(r *http.Request) ([]weir.Claim, error) {
		switch account := r.Header.Get("X-Account"); account {
		case "unknown":
			return nil, fmt.Errorf("no plan: %w", httplimit.ErrMissing)
		case "away":
			return nil, away
		case "free":
			return nil, nil
		default:
			limit, err := weir.NewLimit("plan", weir.FixedWindow{Limit: plan.Load(), Window: time.Hour})
			return []weir.Claim{{Key: account, Limit: limit}, {Key: "site", Limit: whole, Cost: 2}}, err
		}
	}
	serveWith := func(options *httplimit.Options) *site {
		m, err := httplimit.ByRequest(newClock().store(), claims, options)
		if err != nil {
			t.Fatal(err)
		}
		return serve(t, m(hello))
	}
	s := serveWith(nil)
	s.get("/", "X-Account", "ann").want(t, 200, map[string]string{"RateLimit-Policy": `"plan";q=2;w=3600, "site";q=6;w=3600`})
	s.get("/", "X-Account", "ann").want(t, 200, nil)
	s.get("/", "X-Account", "ann").want(t, 429, nil)
	plan.Store(3)
	s.get("/", "X-Account", "ann").want(t, 200, map[string]string{"RateLimit": `"plan";r=0;t=3600, "site";r=0;t=1200`})
	plan.Store(4)
	s.get("/", "X-Account", "ann").want(t, 429, nil) // by the site
	s.get("/").want(t, 429, nil)
	s.get("/", "X-Account", "free").want(t, 200, map[string]string{"RateLimit": ""})
	s.get("/", "X-Account", "unknown").want(t, 403, nil)
	s.get("/", "X-Account", "away").want(t, 200, nil)
	serveWith(&httplimit.Options{StoreErrors: httplimit.FailClosed}).get("/", "X-Account", "away").want(t, 503, nil)
	strict := serveWith(&httplimit.Options{Missing: httplimit.Deny, Cost: func(*http.Request) int64 { return 4 }})
	strict.get("/").want(t, 403, nil)
	strict.get("/", "X-Account", "ann").want(t, 200, map[string]string{"RateLimit": `"plan";r=0;t=3600, "site";r=4;t=1200`})
}

func TestInvalidOptionsAreReported(t *testing.T) {
	store := memstore.New()
	l := limiter(t, store, weir.PerMinute(1))
	limit := weir.MustLimit("a", weir.PerMinute(1))
	part := httplimit.Part{Key: httplimit.PeerAddress, Limits: []*weir.Limit{limit}}
	made := func(_ middleware, err error) error { return err }
	for name, err := range map[string]error{
		"no limiter":   made(httplimit.New(nil, httplimit.PeerAddress, nil)),
		"no key":       made(httplimit.New(l, nil, nil)),
		"status":       made(httplimit.New(l, httplimit.PeerAddress, &httplimit.Options{Status: 200})),
		"fields":       made(httplimit.New(l, httplimit.PeerAddress, &httplimit.Options{Fields: 9})),
		"missing":      made(httplimit.Together(store, []httplimit.Part{part}, &httplimit.Options{Missing: 9})),
		"store errors": made(httplimit.New(l, httplimit.PeerAddress, &httplimit.Options{StoreErrors: 9})),
		"no store":     made(httplimit.Together(nil, []httplimit.Part{part}, nil)),
		"no parts":     made(httplimit.Together(store, nil, nil)),
		"twice":        made(httplimit.Together(store, []httplimit.Part{part, part}, nil)),
		"no limits":    made(httplimit.Together(store, []httplimit.Part{{Key: httplimit.PeerAddress}}, nil)),
		"a nil limit":  made(httplimit.Together(store, []httplimit.Part{{Key: httplimit.PeerAddress, Limits: []*weir.Limit{nil}}}, nil)),
		"no part's":    made(httplimit.Together(store, []httplimit.Part{{Limits: []*weir.Limit{limit}}}, nil)),
		"no function":  made(httplimit.ByRequest(store, nil, nil)),
		"other policy": made(httplimit.Together(store, []httplimit.Part{{Key: part.Key, Limits: part.Limits, Missing: 9}}, nil)),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	teapot := serve(t, perAddress(t, l, &httplimit.Options{Status: 418})(hello))
	teapot.get("/").want(t, 200, nil)
	teapot.get("/").want(t, 418, map[string]string{"Retry-After": "60"})
}

func TestKeys(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/x/{id}", hello)
	request := func(change func(*http.Request)) *http.Request {
		r := httptest.NewRequest("GET", "/x/7", nil)
		change(r)
		return r
	}
	from := func(addr string) *http.Request { return request(func(r *http.Request) { r.RemoteAddr = addr }) }
	routed := func(method string) *http.Request {
		return request(func(r *http.Request) { r.Method, r.Pattern = method, "/x/{id}" })
	}
	plain := request(func(*http.Request) {})
	for _, tt := range []struct {
		key     httplimit.Key
		request *http.Request
		want    string // "" is missing
	}{
		{httplimit.PeerAddress, from("192.0.2.1:80"), "ip:192.0.2.1"},
		{httplimit.PeerAddress, from("[::ffff:192.0.2.1]:80"), "ip:192.0.2.1"},
		{httplimit.PeerAddress, from("[2001:db8:1:2:3:4:5:6]:80"), "ip:2001:db8:1:2::/64"},
		{httplimit.PeerAddress, from("[fe80::1%eth0]:80"), "ip:fe80::/64"},
		{httplimit.PeerAddress, from("@"), ""},
		{httplimit.Route, plain, ""},
		{httplimit.Route, routed("GET"), "route:/x/{id}"},
		{httplimit.RouteOf(mux), plain, "route:/x/{id}"},
		{httplimit.RouteOf(mux), request(func(r *http.Request) { r.URL.Path = "/y" }), ""},
		{httplimit.MethodRoute, plain, ""},
		{httplimit.MethodRoute, routed("POST"), "POST route:/x/{id}"},
		{httplimit.MethodRoute, routed("MADEUP"), "other route:/x/{id}"},
		{httplimit.Header("x-key"), request(func(r *http.Request) { r.Header.Set("X-Key", "k") }), "header:X-Key:k"},
		{httplimit.Header("x-key"), request(func(r *http.Request) { r.Header.Set("X-Key", "") }), ""},
		{httplimit.Joined(httplimit.Constant("1:a"), httplimit.Constant("b")), plain, "3:1:a1:b"},
		{httplimit.Joined(httplimit.Constant("1"), httplimit.Constant("a1:b")), plain, "1:14:a1:b"},
		{httplimit.Joined(httplimit.Constant("a"), httplimit.Route), plain, ""},
	} {
		got, err := tt.key(tt.request)
		if got != tt.want || (tt.want == "") != errors.Is(err, httplimit.ErrMissing) {
			t.Errorf("%s %s: %q, %v; want %q", tt.request.Method, tt.request.RemoteAddr, got, err, tt.want)
		}
	}
}

// Inside a mux the matched route is known, over a real socket.
func TestRoutesHaveSeparateKeys(t *testing.T) {
	m, err := httplimit.New(limiter(t, newClock().store(), weir.PerMinute(1)), httplimit.MethodRoute, nil)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /a/{id}", m(hello))
	mux.Handle("GET /b", m(hello))
	s := serve(t, mux)
	var got []int
	for _, path := range []string{"/a/1", "/a/2", "/b", "/b"} {
		got = append(got, s.get(path).StatusCode)
	}
	if want := []int{200, 429, 200, 429}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
