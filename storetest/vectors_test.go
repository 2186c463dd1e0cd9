package storetest

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"
)

func TestVectorsWantFiles(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{
		"none":        {},
		"other names": {"other.jsonl": {Data: []byte(`{}`)}},
		"no traces":   {"core-2.jsonl": {Data: []byte("\n\n")}},
		"not JSON":    {"core.jsonl": {Data: []byte("trace")}},
		"unknown numbers": {"concurrency.jsonl": {
			Data: []byte(`{"name":"a","limit":{"algorithm":"concurrency","limit":1,"ttl_s":1}}`),
		}},
	} {
		if _, _, err := loadVectors(files); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestVectorsOfAnotherDirectory(t *testing.T) {
	text, err := given.ReadFile("testdata/concurrency.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	names, traces, err := loadVectors(fstest.MapFS{"core-x.jsonl": {Data: []byte(line)},
		"concurrency2.jsonl": {Data: []byte(line)}, "x.jsonl": {Data: []byte(line)}})
	if err != nil || len(names) != 2 || len(traces) != 2 {
		t.Fatalf("got %v, %v", names, err)
	}
	traces[0][0].play(t, open(t, modelSubject))
}

// TestVectorsCompareEveryField changes one number at a time: the trace must no longer pass.
func TestVectorsCompareEveryField(t *testing.T) {
	const text = `{"name":"story","limits":[{"algorithm":"token_bucket",` +
		`"capacity":1,"refill":1,"period_us":1000000,"overdraft":1}],"steps":[` +
		`{"op":"take","at":1000,"costs":[2],"times":1,"granted":1,"decisions":[` +
		`{"remaining":0,"retry_after_us":2000000,"reset_after_us":2000000,"delay_us":1000000}]},` +
		`{"op":"refund","at":1000,"taken_at":1000,"costs":[1],"decisions":[` +
		`{"remaining":1,"retry_after_us":0,"reset_after_us":1000000,"delay_us":0}]}]}`
	if said := playText(t, text); said != "" {
		t.Fatal(said)
	}
	for _, edit := range [][2]string{
		{`"granted":1`, `"granted":0`}, {`"remaining":0`, `"remaining":1`},
		{`"retry_after_us":2000000`, `"retry_after_us":1999999`},
		{`"reset_after_us":2000000`, `"reset_after_us":2000001`}, {`"delay_us":1000000`, `"delay_us":0`},
		{`"remaining":1`, `"remaining":2`},
		{`"op":"refund"`, `"op":"charge"`}, {`"op":"refund"`, `"op":"repay"`},
		{`"decisions":[{"remaining":0`, `"decisions":[{},{"remaining":0`},
		{`"capacity":1`, `"capacity":0`},
	} {
		said := playText(t, strings.Replace(text, edit[0], edit[1], 1))
		if !strings.Contains(said, "story") {
			t.Errorf("%s instead of %s: the trace passed, or does not name itself: %q", edit[1], edit[0], said)
		}
	}
}

func playText(t *testing.T, text string) (said string) {
	t.Helper()
	var tr trace
	if err := json.Unmarshal([]byte(text), &tr); err != nil {
		t.Fatal(err)
	}
	b := open(t, modelSubject)
	return failure(func(t TB) { tr.play(t, b) })
}
