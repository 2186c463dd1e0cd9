package httplimit_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/rules"
)

const tokensRule = `
  - name: tokens
    match: {path: /chat}
    cost: {from: json.max_tokens, max: 500, default: 100, settle: json.usage.in + json.usage.out}
    limit: fixed_window 1000/1m`

// spent is what one rule has charged.
func spent(t *testing.T, g *gate.Gate) int64 {
	t.Helper()
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{Method: "POST", Path: "/chat"}, gate.Ask{}, &v); err != nil {
		t.Fatal(err)
	}
	c := v.At(0)
	return c.Claim.Limit.Units() - c.Decision.Remaining
}

const usage = `{"id":1,"usage":{"in":7,"out":5}}`

const events = "data: {\"text\":\"a\",\"usage\":null}\n\ndata: {\"text\":\"b\",\"usage\":{\"in\":7,\"out\":5}}\n\ndata: [DONE]\n\n"

// TestCostsInBodies: a request is charged what it states, and in the end what the response states. Nothing of either
// changes.
func TestCostsInBodies(t *testing.T) {
	zipped := func(text string) string {
		var b strings.Builder
		w := gzip.NewWriter(&b)
		io.WriteString(w, text)
		w.Close()
		return b.String()
	}
	type fields = map[string]string
	asJSON := fields{"Content-Type": "application/json"}
	for name, test := range map[string]struct {
		status   int
		fields   fields
		body     string
		want     int64
		panics   bool
		decoders httplimit.Decoders
	}{
		"JSON":                     {200, asJSON, usage, 12, false, nil},
		"events":                   {200, fields{"Content-Type": "text/event-stream"}, events, 12, false, nil},
		"lines":                    {200, fields{"Content-Type": "application/x-ndjson"}, "{}\n" + usage, 12, false, nil},
		"gzip":                     {200, fields{"Content-Type": "application/json", "Content-Encoding": "gzip"}, zipped(usage), 12, false, nil},
		"gzip that is none":        {200, fields{"Content-Type": "application/json", "Content-Encoding": "gzip"}, usage, 50, false, nil},
		"gzip without its end":     {200, fields{"Content-Type": "application/json", "Content-Encoding": "gzip"}, zipped(usage)[:30], 50, false, nil},
		"an encoding of the owner": {200, fields{"Content-Type": "application/json", "Content-Encoding": "Upper"}, strings.ToUpper(usage), 12, false, httplimit.Decoders{"upper": lowering}},
		"an unknown encoding":      {200, fields{"Content-Type": "application/json", "Content-Encoding": "upper"}, strings.ToUpper(usage), 50, false, nil},
		"another type":             {200, fields{"Content-Type": "text/html"}, usage, 50, false, nil},
		"no usage":                 {200, asJSON, `{}`, 50, false, nil},
		"no JSON":                  {200, asJSON, usage + "}", 12, false, nil},
		"an error":                 {429, asJSON, `{"error":"busy"}`, 0, false, nil},
		"an error with usage":      {500, asJSON, usage, 12, false, nil},
		"it breaks off":            {200, asJSON, `{"usage":{"in":1,"out":1},`, 50, true, nil},
		"beyond the estimate":      {200, asJSON, `{"usage":{"in":7,"out":900}}`, 907, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := gateOf(t, newClock().store(), tokensRule)
			limit, err := httplimit.ByRules(g, &httplimit.RuleOptions{Decoders: test.decoders})
			if err != nil {
				t.Fatal(err)
			}
			const prompt = `{"max_tokens":50,"prompt":"hello"}`
			s := httptest.NewServer(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got, _ := io.ReadAll(r.Body); string(got) != prompt {
					t.Errorf("the handler got %q", got)
				}
				if got := spent(t, g); got != 50 {
					t.Errorf("%d are reserved", got)
				}
				for name, value := range test.fields {
					w.Header().Set(name, value)
				}
				w.WriteHeader(test.status)
				for i := range test.body {
					io.WriteString(w, test.body[i:i+1])
				}
				if test.panics {
					http.NewResponseController(w).Flush()
					httplimit.Unfinished(w)
					panic(http.ErrAbortHandler)
				}
			})))
			r, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/chat", strings.NewReader(prompt))
			r.Header.Set("Accept-Encoding", "identity")
			answer, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			s.Close()
			if !test.panics && string(got) != test.body {
				t.Errorf("the client got %q, want %q", got, test.body)
			}
			if got := spent(t, g); got != test.want {
				t.Errorf("%d are charged, want %d", got, test.want)
			}
		})
	}
}

func lowering(r io.Reader) (io.Reader, error) {
	text, err := io.ReadAll(r)
	return strings.NewReader(strings.ToLower(string(text))), err
}

// TestBodiesOfRequestsUpToAMiB: those are read, and the handler gets each byte of longer ones too.
func TestBodiesOfRequestsUpToAMiB(t *testing.T) {
	for _, test := range []struct {
		padding int
		type_   string
		want    int64
	}{{1000, "application/json", 50}, {900_000, "text/plain", 50}, {1 << 20, "application/json", 100}, {3 << 20, "", 100}} {
		for _, chunked := range []bool{false, true} {
			g := gateOf(t, newClock().store(), tokensRule)
			limit, _ := httplimit.ByRules(g, nil)
			s := httptest.NewServer(limit(echo))
			text := `{"max_tokens":50,"prompt":"` + strings.Repeat("x", test.padding) + `"}`
			var content io.Reader = strings.NewReader(text)
			if chunked {
				content = io.MultiReader(content)
			}
			answer, err := s.Client().Post(s.URL+"/chat", test.type_, content)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			s.Close()
			if want := fmt.Sprintf("%d %x <nil>", len(text), sha256.Sum256([]byte(text))); string(got) != want {
				t.Errorf("%d: the handler got %s, want %s", test.padding, got, want)
			}
			if got := spent(t, g); got != test.want {
				t.Errorf("%d, chunked %v: %d are charged, want %d", test.padding, chunked, got, test.want)
			}
		}
	}
}

// TestAConditionOnAnUnreadBodyRefuses: padding, or another spelling, must not avoid a rule.
func TestAConditionOnAnUnreadBodyRefuses(t *testing.T) {
	limit := byRules(t, newClock().store(), `
  - {name: big, match: {path: /chat, json: {model: big}}, limit: none}`, nil)
	for body, want := range map[string]int{
		`{"model":"small"}`: 200, ``: 200, `{"model":"big"}`: 403, `{"Model":"big"}`: 400,
		`{"model":"big","x":"` + strings.Repeat("x", 1<<20) + `"}`: 400,
	} {
		w := httptest.NewRecorder()
		limit(echo).ServeHTTP(w, httptest.NewRequest("POST", "/chat", strings.NewReader(body)))
		if w.Code != want {
			t.Errorf("%.40s: %d, want %d: %s", body, w.Code, want, w.Body)
		}
	}
	for charset, want := range map[string]int{"utf-8": 200, "UTF8": 200, "utf-7": 400, "utf-8, text/json;charset=utf-7": 400} {
		r := httptest.NewRequest("POST", "/chat", strings.NewReader(`{"model":"small","+AG0-odel":"big"}`))
		r.Header.Set("Content-Type", "application/json;charset="+charset)
		w := httptest.NewRecorder()
		if limit(echo).ServeHTTP(w, r); w.Code != want {
			t.Errorf("charset %s: %d, want %d: %s", charset, w.Code, want, w.Body)
		}
	}
}

// TestAStreamThatIsChargedComesUncompressed: a client that accepts gzip must not get a stream that no step charges. Other
// requests have what they accept.
func TestAStreamThatIsChargedComesUncompressed(t *testing.T) {
	for path, want := range map[string]string{"/chat": "identity", "/other": "gzip, br", "/whole": "gzip, br"} {
		limit := byRules(t, newClock().store(), `
  - {name: a, preset: openai, match: {path: /chat}, charge: as_it_streams, limit: fixed_window 1000/1m}
  - {name: b, preset: openai, match: {path: /whole}, limit: fixed_window 1000/1m}`, nil)
		r := httptest.NewRequest("POST", path, strings.NewReader(`{"stream":true}`))
		r.Header.Set("Accept-Encoding", "gzip, br")
		got := ""
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got = r.Header.Get("Accept-Encoding")
		})).ServeHTTP(httptest.NewRecorder(), r)
		if got != want || r.Header.Get("Accept-Encoding") != "gzip, br" {
			t.Errorf("%s: the service is asked for %q, want %q", path, got, want)
		}
	}
}

// TestADecoderThatPanics ends nothing but its reading: it runs apart from the handler, whose panics net/http recovers.
func TestADecoderThatPanics(t *testing.T) {
	g := gateOf(t, newClock().store(), tokensRule)
	limit, _ := httplimit.ByRules(g, &httplimit.RuleOptions{Decoders: httplimit.Decoders{
		"odd": func(io.Reader) (io.Reader, error) { panic("a fault of the decoder") }}})
	w := httptest.NewRecorder()
	limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "odd")
		io.WriteString(w, usage)
	})).ServeHTTP(w, httptest.NewRequest("POST", "/chat", strings.NewReader(`{"max_tokens":50}`)))
	if got := spent(t, g); got != 50 || w.Body.String() != usage {
		t.Errorf("%d are charged, and the client got %q", got, w.Body)
	}
}

// endless is a response of a length, without a copy of it.
type endless struct{ left int }

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(e.left, len(p))
	for i := range p[:n] {
		p[i] = 'x'
	}
	e.left -= n
	return n, nil
}

// unkept is a client that keeps nothing.
type unkept struct{ fields http.Header }

func (u unkept) Header() http.Header         { return u.fields }
func (u unkept) Write(b []byte) (int, error) { return len(b), nil }
func (u unkept) WriteHeader(int)             {}

// TestMemoryOfLongResponses: a response of 1 GiB takes no more memory than a short one.
func TestMemoryOfLongResponses(t *testing.T) {
	length := 1 << 30
	if testing.Short() {
		length = 64 << 20
	}
	g := gateOf(t, newClock().store(), tokensRule)
	limit, _ := httplimit.ByRules(g, nil)
	handler := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"text":"`)
		io.Copy(w, &endless{length})
		io.WriteString(w, `","usage":{"in":7,"out":5}}`)
	}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	handler.ServeHTTP(unkept{make(http.Header)}, httptest.NewRequest("POST", "/chat", strings.NewReader("{}")))
	runtime.ReadMemStats(&after)
	if all := after.TotalAlloc - before.TotalAlloc; all > 1<<20 {
		t.Errorf("%d bytes were allocated", all)
	}
	if got := spent(t, g); got != 12 {
		t.Errorf("%d are charged", got)
	}
}

// TestStreamsWithoutUsageCostWhatPassed: a client that leaves before the usage, or asks for none, does not get more than
// it pays: the prompt, and what has passed.
func TestStreamsWithoutUsageCostWhatPassed(t *testing.T) {
	const passed, asked = 400, 17 // tokens: a quarter of the bytes
	text := `data: {"choices":[{"delta":{"content":"` + strings.Repeat("word", passed/2) + "\"}}]}\n\n"
	text += text
	for name, test := range map[string]struct {
		rule   string
		status int
		most   int
		breaks bool
		zipped bool
		want   int64
	}{
		"whole":                   {"", 200, 50, false, false, passed + asked},
		"broken":                  {"", 200, 50, true, false, passed + asked},
		"below the estimate":      {"", 200, 900, true, false, 900 + asked},
		"an error":                {"", 500, 50, true, false, 50 + asked},
		"compressed":              {"", 200, 50, true, true, passed + asked},
		"no count":                {"cost: {from: json.max_tokens, max: 500, settle: json.usage.n}, ", 200, 50, true, false, 50},
		"a count of its own":      {"cost: {from: json.max_tokens, max: 500, settle: header.X}, stream: {count: 0.5 * bytes(json.choices.*.delta.content)}, ", 200, 1, true, false, 2 * passed},
		"charged as it streams":   {"charge: as_it_streams, ", 200, 50, true, false, passed + asked},
		"compressed as it does":   {"charge: as_it_streams, ", 200, 50, true, true, passed + asked},
		"whole, as it streams":    {"charge: as_it_streams, ", 200, 50, false, false, passed + asked},
		"whole, with a text more": {"charge: as_it_streams, stream: {step: 1}, ", 200, 50, false, true, passed + asked},
	} {
		t.Run(name, func(t *testing.T) {
			g := gateOf(t, newClock().store(), "\n  - {name: a, preset: openai, match: {path: /chat}, "+test.rule+"limit: fixed_window 1000/1m}")
			limit, _ := httplimit.ByRules(g, nil)
			s := httptest.NewServer(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				var to io.Writer = w
				if test.zipped {
					w.Header().Set("Content-Encoding", "gzip")
					zipped := gzip.NewWriter(w)
					defer zipped.Flush()
					to = zipped
				}
				w.WriteHeader(test.status)
				io.WriteString(to, text)
				if test.zipped {
					to.(*gzip.Writer).Flush()
				}
				if http.NewResponseController(w).Flush(); test.breaks {
					httplimit.Unfinished(w)
					panic(http.ErrAbortHandler)
				}
			})))
			body := fmt.Sprintf(`{"max_tokens":%d,"stream":true,"stream_options":{},"messages":[]}`, test.most)
			if answer, err := s.Client().Post(s.URL+"/chat", "application/json", strings.NewReader(body)); err == nil {
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
			s.Close()
			if got := spent(t, g); got != test.want {
				t.Errorf("%d are charged, want %d", got, test.want)
			}
		})
	}
}

// TestUnreadBodiesCostTheirLength: some services read bodies that the rules do not, such as UTF-16 or with NaN. weir
// cannot request the usage in such a body, and the prompt must not be free.
func TestUnreadBodiesCostTheirLength(t *testing.T) {
	const passed = 400
	long := strings.Repeat("word", 2000)
	for name, test := range map[string]struct {
		body    string
		chunked bool
		charge  string
		want    int64
	}{
		"NaN":                  {`{"x":NaN,"messages":"` + long + `"}`, false, "", (8000+24+3)/4 + passed},
		"UTF-16":               {"{\x00\"\x00" + long, false, "", (8000+4+3)/4 + passed},
		"short":                {`{"x":NaN}`, false, "", 1000},
		"1 MiB":                {strings.Repeat(" ", 1<<20+1), false, "", 9000 + passed},
		"of unknown length":    {strings.Repeat(" ", 1<<20+1), true, "", 9000 + passed},
		"as it streams":        {`{"x":NaN,"messages":"` + long + `"}`, false, "charge: as_it_streams, ", (8000+24+3)/4 + passed},
		"1 MiB, as it streams": {strings.Repeat(" ", 1<<20+1), true, "charge: as_it_streams, ", 9000 + passed},
	} {
		g := gateOf(t, newClock().store(), "\n  - {name: a, preset: openai, match: {path: /chat}, cost: {max: 9000}, "+test.charge+"limit: fixed_window 100000/1m}")
		limit, _ := httplimit.ByRules(g, nil)
		request := httptest.NewRequest("POST", "/chat", strings.NewReader(test.body))
		if test.chunked {
			request.ContentLength = -1
		}
		limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, `data: {"choices":[{"delta":{"content":"%s"}}]}`+"\n\n", strings.Repeat("word", passed))
		})).ServeHTTP(httptest.NewRecorder(), request)
		if got := spent(t, g); got != test.want {
			t.Errorf("%s: %d are charged, want %d", name, got, test.want)
		}
	}
}

// TestBrokenStreamCostsItsStatedUsage: of a stream that breaks off, the usage that it has stated so far is no less than its cost. Gemini
// states one in each event, with the tokens of thoughts that no event has.
func TestBrokenStreamCostsItsStatedUsage(t *testing.T) {
	for _, charge := range []string{"", "charge: as_it_streams, ", "charge: as_it_streams, stream: {step: 900}, "} {
		g := gateOf(t, newClock().store(), "\n  - {name: a, preset: gemini, match: {path: /chat}, "+charge+"limit: fixed_window 1000/1m}")
		limit, _ := httplimit.ByRules(g, nil)
		limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, `data: {"candidates":[{"content":{"parts":[{"text":"word"}]}}],"usageMetadata":{"totalTokenCount":700}}`+"\n\n")
			httplimit.Unfinished(w)
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/chat", strings.NewReader(`{"generationConfig":{"maxOutputTokens":90}}`)))
		want := int64(700)
		if strings.Contains(charge, "900") {
			want = 900 + 11 // the step has charged more
		}
		if got := spent(t, g); got != want {
			t.Errorf("%s%d are charged, want %d", charge, got, want)
		}
	}
}

// TestListsAreCutBetweenDocuments: a JSON list that is streamed, however its pieces are cut, ends with the error as the
// last element after the elements that are charged, but for a piece that ended within the first one that is not.
func TestListsAreCutBetweenDocuments(t *testing.T) {
	const (
		element   = `{"candidates":[{"content":{"parts":[{"text":"word"}]}}]}`
		separator = "\n,\r\n"
		elements  = 4
		asked     = 4 // tokens
	)
	text := " [" + strings.Repeat(element+separator, elements-1) + element + "\n]\n"
	for charged := range elements {
		refused := strings.Repeat(element+separator, charged)
		begin := len(" [") + len(refused)
		for split := range len(text) {
			g := gateOf(t, newClock().store(), fmt.Sprintf("\n  - {name: a, preset: gemini, match: {path: /chat}, charge: as_it_streams, "+
				"stream: {step: 2, overrun: cut}, limit: fixed_window %d/1m}", asked+charged))
			limit, _ := httplimit.ByRules(g, nil)
			w := httptest.NewRecorder()
			limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if _, err := io.WriteString(w, text[:split]); err == nil {
					io.WriteString(w, text[split:])
				}
			})).ServeHTTP(w, httptest.NewRequest("POST", "/chat", strings.NewReader(`{"contents":[]}`)))
			got := w.Body.String()
			if begin < split && split < begin+len(element) {
				continue
			}
			var list []map[string]any
			if err := json.Unmarshal([]byte(got), &list); err != nil || len(list) != charged+1 || list[charged]["error"] == nil {
				t.Fatalf("%d elements, cut at %d: %v: %s", charged, split, err, got)
			}
			if spent(t, g) != int64(asked+charged) {
				t.Fatalf("%d elements, cut at %d: %d are charged", charged, split, spent(t, g))
			}
		}
	}
}

// TestJSONIsNotAStream: one text is charged at its end, also if it is sent in pieces.
func TestJSONIsNotAStream(t *testing.T) {
	g := gateOf(t, newClock().store(), "\n  - {name: a, preset: gemini, match: {path: /chat}, charge: as_it_streams, "+
		"stream: {overrun: cut}, limit: fixed_window 5/1m}")
	limit, _ := httplimit.ByRules(g, nil)
	w := httptest.NewRecorder()
	const text = ` {"candidates":[{"content":{"parts":[{"text":"word word word word word word"}]}}],"usageMetadata":{"totalTokenCount":4}}`
	limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := range text {
			io.WriteString(w, text[i:i+1])
		}
	})).ServeHTTP(w, httptest.NewRequest("POST", "/chat", strings.NewReader(`{"contents":[]}`)))
	if got := spent(t, g); w.Body.String() != text || got != 4 {
		t.Errorf("%d are charged: %s", got, w.Body)
	}
}

// TestBodiesThatWereReadEndAtOnce: with the last bytes, or a proxy closes connections of clients whose service is fast.
func TestBodiesThatWereReadEndAtOnce(t *testing.T) {
	limit, _ := httplimit.ByRules(gateOf(t, newClock().store(), tokensRule), nil)
	limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var buffer [100]byte
		if n, err := r.Body.Read(buffer[:]); string(buffer[:n]) != `{"max_tokens":5}` || err != io.EOF {
			t.Errorf("%q, %v", buffer[:n], err)
		}
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/chat", strings.NewReader(`{"max_tokens":5}`)))
}

// TestWritesAfterACutAreNotSent: a handler that does not look at the errors of its writes, as of fmt.Fprintf, sends nothing
// after the last event, and is charged nothing more.
func TestWritesAfterACutAreNotSent(t *testing.T) {
	clock := newClock()
	g := gateOf(t, clock.store(), "\n  - {name: a, preset: openai, match: {path: /chat}, charge: as_it_streams, stream: {step: 2, overrun: cut}, limit: fixed_window 8/1m}")
	limit, _ := httplimit.ByRules(g, nil)
	w := httptest.NewRecorder()
	limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 20 {
			if i == 15 {
				clock.pass(time.Minute) // there is room again
			}
			io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n")
		}
	})).ServeHTTP(w, httptest.NewRequest("POST", "/chat", strings.NewReader(`{"messages":[]}`)))
	text := w.Body.String()
	if strings.Count(text, "word") != 4 || strings.Count(text, `"error":`) != 1 || !strings.HasSuffix(text, "}}\n\n") {
		t.Errorf("sent: %s", text)
	}
	if got := spent(t, g); got != 0 {
		t.Errorf("%d are charged in the next window", got)
	}
}

// TestStreamsOfAKnownLengthAreCut: a service that has all events at once may state their length, which is another one then.
func TestStreamsOfAKnownLengthAreCut(t *testing.T) {
	g := gateOf(t, newClock().store(), "\n  - {name: a, preset: openai, match: {path: /chat}, charge: as_it_streams, stream: {step: 2, overrun: cut}, limit: fixed_window 8/1m}")
	limit, _ := httplimit.ByRules(g, nil)
	text := strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n", 6)
	s := httptest.NewServer(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "Text/Event-Stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		io.WriteString(w, text)
	})))
	defer s.Close()
	response, err := s.Client().Post(s.URL+"/chat", "application/json", strings.NewReader(`{"messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil || strings.Count(string(got), "word") != 4 || !strings.HasSuffix(string(got), "}}\n\n") {
		t.Errorf("%v: %s", err, got)
	}
}
