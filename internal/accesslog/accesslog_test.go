package accesslog_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/accesslog"
)

func TestParse(t *testing.T) {
	const line = `192.0.2.7 - alice [17/May/2015:10:05:03 +0200] "GET /a b?c=\"d\" HTTP/1.1" 404 12 ` +
		`"http://x/" "Agent \"1\" \\"`
	got, err := accesslog.Parse(line)
	want := accesslog.Entry{Client: netip.MustParseAddr("192.0.2.7"), User: "alice",
		Time:   time.Date(2015, 5, 17, 8, 5, 3, 0, time.UTC),
		Method: "GET", Target: `/a b?c="d"`, Protocol: "HTTP/1.1", Status: 404, Bytes: 12, Referer: "http://x/",
		Agent: `Agent "1" \`}
	if !got.Time.Equal(want.Time) {
		t.Errorf("the time is %v", got.Time)
	}
	got.Time = want.Time
	if err != nil || got != want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	for _, line := range []string{
		`::1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 -`,
		`192.0.2.7 - - [17/May/2015:10:05:03 +0000] "\x16\x03\x01" 400 226 "-" "-"`,
		`192.0.2.7 - - [17/May/2015:10:05:03 +0000] "-" 408 - "-" "-"`,
		`192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 - "-" "cut of`,
	} {
		if _, err := accesslog.Parse(line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestParseErrorsNameTheField(t *testing.T) {
	for line, says := range map[string]string{
		``: "address",
		`host - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`: "address",
		`::1 - - [17/May/2015] "GET / HTTP/1.0" 200 1`:                 "time",
		`::1 - - 17/May "GET / HTTP/1.0" 200 1`:                        "[ is missing",
		`::1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0 200 1`:   "quotation mark",
		`::1 - - [17/May/2015:10:05:03 +0000] GET / HTTP/1.0" 200 1`:   "quotation mark",
		`::1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" x 1`:    "status",
		`::1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1x`: "size",
	} {
		if _, err := accesslog.Parse(line); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want one about %q", line, err, says)
		}
	}
}

// TestGenerateIsReadBack and is the same for the same seed.
func TestGenerateIsReadBack(t *testing.T) {
	var first, again, other bytes.Buffer
	for out, seed := range map[*bytes.Buffer]uint64{&first: 1, &again: 1, &other: 2} {
		if err := accesslog.Generate(out, seed, 10_000); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), again.Bytes()) || bytes.Equal(first.Bytes(), other.Bytes()) {
		t.Error("the seed does not decide")
	}
	counts, busiest := make(map[netip.Addr]int), 0
	for entry, err := range accesslog.Read(&first) {
		if err != nil {
			t.Fatal(err)
		}
		counts[entry.Client]++
		busiest = max(busiest, counts[entry.Client])
	}
	if len(counts) < 300 || busiest < 200 || busiest > 3000 {
		t.Errorf("%d addresses, the busiest %d times: no traffic looks like this", len(counts), busiest)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`192.0.2.7 - - [17/May/2015:10:05:03 +0200] "GET /a b?c=\"d\" HTTP/1.1" 404 12 "http://x/" "Agent"`)
	f.Add(`"" - [] "\`)
	f.Fuzz(func(t *testing.T, line string) {
		if entry, err := accesslog.Parse(line); err == nil && (!entry.Client.IsValid() || entry.Time.IsZero()) {
			t.Errorf("%q is read as %+v", line, entry)
		}
	})
}
