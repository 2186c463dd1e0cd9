package accesslog

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// first is the first request of a text.
func first(t *testing.T, text string, o Options) (string, File) {
	t.Helper()
	l, err := Open([]string{"-"}, strings.NewReader(text), o)
	if err != nil {
		t.Fatal(err)
	}
	list := all(t, l)
	if len(list) == 0 {
		t.Fatalf("%q: %+v", text, l.Files())
	}
	return show(list[0]), l.Files()[0]
}

func TestApacheFormats(t *testing.T) {
	for _, test := range []struct{ format, line, want string }{
		{`%h %l %u %t \"%r\" %>s %b`, `::1 - "" [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 -`,
			`2000-10-10T20:55:36Z client=::1 user="" method=GET target=/a status=200`},
		{`"%a %{c}a %t \"%m %U%q %H\" %>s %O %D \"%{User-agent}i\" \"%{x-forwarded-for}i\"" timed`,
			`192.0.2.1 10.0.0.1 [10/Oct/2000:13:55:36 +0000] "GET /ab?c=d HTTP/1.1" 200 99 2500 "say \"hi\"\n" "a, b"`,
			"2000-10-10T13:55:36Z took=2.5ms client=192.0.2.1 method=GET target=/ab?c=d status=200 bytes=99 " +
				"User-Agent=say \"hi\"\n X-Forwarded-For=a, b"},
		{`%{usec}t %{sec}t %v %h %{ms}T 100%% %!200,304{Referer}i %r`, `971186136123456 971186136 example.com 192.0.2.1 7 100% - GET / HTTP/1.1`,
			`2000-10-10T13:55:36.123456Z took=7ms client=192.0.2.1 method=GET host=example.com target=/`},
		{`%t %h %m %U %q`, `[10/Oct/2000:13:55:36 +0000] 192.0.2.1 GET /a ?b=c`,
			`2000-10-10T13:55:36Z client=192.0.2.1 method=GET target=/a?b=c`},
		{`%t %{%d/%b}t %h %^FU "%r"`, `[10/Oct/2000:13:55:36 +0000] 10/Oct 192.0.2.1 77 "GET / HTTP/1.1"`,
			`2000-10-10T13:55:36Z client=192.0.2.1 method=GET target=/`},
	} {
		got, file := first(t, test.line+"\n", Options{Format: test.format})
		if got != test.want || file.TimeIs != Start || file.Format != "apache" {
			t.Errorf("%s:\n got %s\nwant %s\n%+v", test.format, got, test.want, file)
		}
	}
	for format, want := range map[string]string{
		"%h %u":          "no time",
		"%h%u %t":        "nothing separates %h from %u",
		"%t %{Referer":   "a brace is not closed",
		"%t %":           "has no letter",
		`%t %{Referer}`:  "has no letter",
		`%t %{Referer}^`: "has no letter",
	} {
		if _, err := compile(format); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v; want %q in it", format, err, want)
		}
	}
}

func TestNginxFormats(t *testing.T) {
	for _, test := range []struct{ format, line, want string }{
		{`$remote_addr [$time_local] "$request"`, `192.0.2.1 [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1"`,
			`2000-10-10T13:55:36Z client=192.0.2.1 method=GET target=/`},
		{`"$remote_addr" "$msec"`, `"192.0.2.1" "971186136.500"`, `2000-10-10T13:55:36.5Z client=192.0.2.1`},
		{`log_format x "$remote_addr \"$msec\"";`, `192.0.2.1 "971186136.500"`, `2000-10-10T13:55:36.5Z client=192.0.2.1`},
		{`$start $took_ms $client $method $path`, `971186136.500 7 192.0.2.1 GET /a?b`, `2000-10-10T13:55:36.5Z took=7ms client=192.0.2.1 method=GET target=/a?b`},
		{`'$msec $uri$is_args$args ' '$status'`, `971186136.500 /ab?c=d 200`, `2000-10-10T13:55:36.5Z target=/ab?c=d status=200`},
		{`$msec|$uri|$args|$server_name|$host|$realip_remote_addr`, `971186136.500|/a|b=c|_|example.com|192.0.2.9`,
			`2000-10-10T13:55:36.5Z client=192.0.2.9 host=example.com target=/a?b=c`},
		{`log_format x $msec '\t' $remote_addr;`, "971186136.500\tunix:", `2000-10-10T13:55:36.5Z`},
	} {
		if got, _ := first(t, test.line+"\n", Options{Format: test.format}); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.format, got, test.want)
		}
	}
	for format, want := range map[string]string{
		"'$msec $status":  "a quote is not closed",
		"'$msec''$uri'":   "a space is missing after it",
		"escape=no $msec": "escape=no: allowed are default, json and none",
		"$remote_addr":    "no time",
		"log_format x y":  "no time",
	} {
		if _, err := compile(format); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v; want %q in it", format, err, want)
		}
	}
}

// TestRareValuesAreRead: the first hundred lines have no user, and null for the agent.
func TestRareValuesAreRead(t *testing.T) {
	text := strings.Repeat(`{"ts":971186136,"remote_addr":"192.0.2.1","uri":"/","user_agent":null}`+"\n", 200) +
		`{"ts":971186136,"remote_addr":"192.0.2.1","uri":"/last","user":{"name":"ann"},"user_agent":"x"}` + "\n"
	l, err := Open([]string{"-"}, strings.NewReader(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	list := all(t, l)
	want := "2000-10-10T13:55:36Z client=192.0.2.1 user=ann target=/last User-Agent=x"
	if got := show(list[len(list)-1]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMappedJSON(t *testing.T) {
	text := `{"a":{"ip":["10.0.0.1","192.0.2.1:443"]},"x.y":"/p","q":"b=c","at":971186136500,"n":{"took":"1.5ms"},"s":200,"len":7,` +
		`"h":{"referer":"r","user-agent":"ua"},"id":"k1"}` + "\n"
	for _, test := range []struct {
		places string
		want   string
	}{
		{`client=.a.ip[1],path=."x.y",query=.q,start=.at,took=.n.took,status=.s,bytes=len,headers=.h,header.x-key=.id`,
			`2000-10-10T13:55:36.5Z took=1.5ms client=192.0.2.1 target=/p?b=c status=200 bytes=7 Referer=r User-Agent=ua X-Key=k1`},
		{`time=.at,took_ms=.len,agent=.id,user=.id2`,
			`2000-10-10T13:55:36.493Z took=7ms User-Agent=k1`},
	} {
		if got, file := first(t, text, Options{Map: test.places}); got != test.want || file.TimeIs != Start {
			t.Errorf("%v:\n got %s\nwant %s\n%+v", test.places, got, test.want, file)
		}
	}
	for want, places := range map[string]string{
		`"header." is not`:  "time=.t,header.=.x",
		"two values are at": "time=.t,start=.t",
		"a key is empty":    "time=.t..u",
		"an index is":       "time=.t[a]",
		"a quote is not":    `time=."t`,
		"user has no path":  "time=.t,user=",
		"there is no time":  "user=.t",
		`"ip" is not known`: "ip=.t",
		"tried were json":   "time!=.missing",
	} {
		_, err := Open([]string{"-"}, strings.NewReader(text), Options{Map: places})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: the error is %v; want %q in it", places, err, want)
		}
	}
	_, err := Open([]string{"-"}, strings.NewReader(text), Options{Format: "common", Map: "time=.t"})
	if err == nil || !strings.Contains(err.Error(), "only json has a map") {
		t.Error(err)
	}
}

// mappedAs is the format of a map for lines like one.
func mappedAs(t *testing.T, places, line string) format {
	t.Helper()
	f, err := mapped(places)
	if err != nil {
		t.Fatal(err)
	}
	f, ok := f.prepare([]string{line})
	if !ok {
		t.Fatalf("%s does not read %s", places, line)
	}
	return f
}

func TestBrokenJSONIsNotRead(t *testing.T) {
	good := `{"time":971186136,"path":"/a","n":[1,{"b":null}]}`
	f := mappedAs(t, "time=.time,path=.path", good)
	var d draft
	var r Record
	if err := f.request(good, &d, &r); err != nil {
		t.Fatal(err)
	}
	odd := mappedAs(t, "time=.time,path=.path,method=.m", good)
	if err := odd.request(`{"time":971186136,"path":"/a","m":"\u0016\u0003"}`, &d, &r); err != errNotHTTP {
		t.Errorf("a method that is none: %v", err)
	}
	deep := strings.Repeat("[", 100000)
	for _, bad := range []string{"", "x", "[]", `"a"`, good[:len(good)-1], good + "x", good + good, strings.Replace(good, ":", "", 1),
		strings.Replace(good, ",", "", 1), strings.Replace(good, "1,", "1,,", 1), strings.Replace(good, "null", "nul", 1),
		strings.Replace(good, `"/a"`, `"/a`, 1), strings.Replace(good, "}]", "]}", 1), `{"a":` + deep + strings.Repeat("]", 100000) + "}",
		`{"a":` + deep, good[:len(good)-1] + `,"a":` + deep + strings.Repeat("]", 100000) + "}", "{1:2}", `{"a"}`, `{,}`} {
		if err := f.request(bad, &d, &r); err == nil {
			t.Errorf("%.80q was read as %s", bad, show(r))
		}
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "192.0.2.1:443": "192.0.2.1", "2001:db8::1": "2001:db8::1", "[2001:db8::1]:443": "2001:db8::1",
		"[2001:db8::1]": "2001:db8::1", "::ffff:192.0.2.1": "192.0.2.1", "fe80::1%eth0": "fe80::1", "[fe80::1%eth0]:1": "fe80::1",
		"unix:": "invalid IP", "example.com": "invalid IP", "@": "invalid IP", "": "invalid IP", "[": "invalid IP", "1.2.3": "invalid IP",
	} {
		if got := address(text); got.String() != want {
			t.Errorf("%q is read as %s, want %s", text, got, want)
		}
	}
}

func TestTimes(t *testing.T) {
	zone := time.FixedZone("", 3600)
	for text, want := range map[string]string{
		"10/Oct/2000:13:55:36 -0700": "2000-10-10T20:55:36Z", "10/Oct/2000:13:55:36": "2000-10-10T12:55:36Z",
		"06/Feb/2009:12:14:14.655": "2009-02-06T11:14:14.655Z", "2009-02-06T12:14:14.1234567Z": "2009-02-06T12:14:14.123456Z",
		"2009-02-06 12:14:14,5+05:30": "2009-02-06T06:44:14.5Z", "2009-02-06T12:14:14-08": "2009-02-06T20:14:14Z",
		"971186136": "2000-10-10T13:55:36Z", "971186136.25": "2000-10-10T13:55:36.25Z", "1795392145629": "2026-11-23T00:02:25.629Z",
		"1795392145629123": "2026-11-23T00:02:25.629123Z", "1795392145629123456": "2026-11-23T00:02:25.629123Z",
		"1.795392145e9": "2026-11-23T00:02:25Z", "29/Feb/2024:23:59:60 +0000": "2024-03-01T00:00:00Z",
		"29/Feb/2023:00:00:00 +0000": "", "2023-13-01T00:00:00Z": "", "2023-00-01T00:00:00Z": "", "2023-01-01T24:00:00Z": "",
		"2023-01-01T00:60:00Z": "", "2023-01-01T00:00:00+1": "", "2023-01-01T00:00:00+99:00": "", "1/Oct/2000:13:55:36 -0700": "",
		"": "", "-": "", "1e400": "", "abc": "", "99999999999999999999999": "", "2023-01-01T00:00:00Zx": "", "10/oct/2000:13:55:36 -0700": "",
		"2023-01-01x00:00:00Z": "", "1/-1/2000:00:00:00 +0000": "", "2023-01-01T-1:00:00Z": "", "1969-12-31T00:00:00Z": "",
	} {
		c := clock{zone: zone}
		micros, ok := c.read(text)
		got := ""
		if ok {
			got = time.UnixMicro(micros).UTC().Format(time.RFC3339Nano)
		}
		if got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	}
}

func TestTheZoneIsReadOfEachTime(t *testing.T) {
	var c clock
	east, _ := c.read("10/Oct/2000:13:55:36 +0100")
	west, _ := c.read("10/Oct/2000:13:55:36 -0100")
	if west-east != 2*time.Hour.Microseconds() {
		t.Errorf("%d and %d", east, west)
	}
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string]string{"200": "200 true", "0": "-1 true", "000": "-1 true", "-1": "-1 true", "999": "999 true",
		"99": "99 false", "1000": "1000 false", "2x0": "0 false", "2.5": "0 false", "": "-1 true"} {
		if status, ok := statusCode(text); fmt.Sprint(status, ok) != want && ok {
			t.Errorf("the status %q is read as %d %v, want %s", text, status, ok, want)
		} else if strings.HasSuffix(want, "true") != ok {
			t.Errorf("the status %q: %v, want %s", text, ok, want)
		}
	}
	for text, want := range map[string]string{"1": "1s", "0.0015": "1.5ms", "-1": "-1µs", "12ms": "12ms", "1.": "1s", "0.1234567": "123.456ms",
		"9300000000": "", "99999999999999999999": "", "": "", ".5": "", "1x": "", "1.x": "", "s": "", "1,5": ""} {
		micros, ok := duration(text, time.Second)
		if got := (time.Duration(micros) * time.Microsecond).String(); ok != (want != "") || ok && got != want {
			t.Errorf("the duration %q is read as %s %v, want %s", text, got, ok, want)
		}
	}
}

func TestEscapes(t *testing.T) {
	for text, want := range map[string]string{`a`: "a", `\x41\`: `A\`, `\x4`: `\x4`, `\xzz\q`: `\xzz\q`, `\u00e4\u00E4`: "ää", `\ud83d\ude00`: "😀",
		`\ud83dx`: "\ufffdx", `\ud83d\u0041`: "\ufffdA", `\ud83d\n`: "\ufffd\n", `\u12`: `\u12`, `\\\"\/\b\f\n\r\t\v`: "\\\"/\b\f\n\r\t\v"} {
		var all texts
		if got := backslash.plain(&all, text); got != want {
			t.Errorf("%s is read as %q, want %q", text, got, want)
		}
	}
	var all texts
	var kept []string
	for i := range 10000 {
		kept = append(kept, escapes["haproxy"].plain(&all, fmt.Sprintf("#41%d#", i)))
	}
	for i, text := range kept {
		if text != fmt.Sprintf("A%d#", i) {
			t.Fatalf("text %d became %q", i, text)
		}
	}
}

// TestWhatIsWrittenIsRead: a record becomes a line in nginx' and Apache's escapes and in JSON, and is the same again.
func TestWhatIsWrittenIsRead(t *testing.T) {
	template, err := compile(`'$msec $request_time $remote_addr "$remote_user" "$request" $status $body_bytes_sent "$http_user_agent"'`)
	if err != nil {
		t.Fatal(err)
	}
	text := template.format(End)
	mapped := mappedAs(t, `time=.t[1],took=.d,client=.c,user=.u,request=.r,status=.s,bytes=.b,agent=.h.a`, "{}")
	rapid.Check(t, func(t *rapid.T) {
		characters := rapid.RuneFrom([]rune("ab \"\\\n-é😀"))
		value := rapid.OneOf(rapid.String(), rapid.StringOf(characters)).Filter(func(s string) bool { return s != "-" })
		address := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")))
		want := Record{Time: rapid.Int64Range(1e15, 2e15).Draw(t, "time") / 1000 * 1000, Took: rapid.Int64Range(0, 1e9).Draw(t, "took"),
			Client: address, User: value.Draw(t, "user"), Method: rapid.SampledFrom([]string{"GET", "POST", "M-SEARCH"}).Draw(t, "method"),
			Target: "/" + value.Draw(t, "target"), Status: rapid.IntRange(100, 999).Draw(t, "status"),
			Hits: Unknown, Bytes: rapid.Int64Min(0).Filter(func(n int64) bool { return n < 1<<62/10 }).Draw(t, "bytes"), Agent: value.Draw(t, "agent")}
		if want.Agent != "" {
			want.Fields = []Field{{"User-Agent", want.Agent}}
		}
		ended, took := want.Time+want.Took, fmt.Sprintf("%d.%06d", want.Took/1e6, want.Took%1e6)
		request := want.Method + " " + want.Target + " HTTP/1.1"
		quote := rapid.SampledFrom([]func(string) string{nginxQuoted, apacheQuoted}).Draw(t, "quotes")
		compare(t, &text, want, fmt.Sprintf("%d.%06d %s %s %s %s %d %d %s", ended/1e6, ended%1e6, took, want.Client, quote(want.User),
			quote(request), want.Status, want.Bytes, quote(want.Agent)))
		compare(t, &mapped, want, fmt.Sprintf(`{"t":[0,%d],"d":%s,"c":"%s","x":{"u":1},"u":%s,"r":%s,"s":%d,"b":%d,"h":{"a":%s}}`, ended, took,
			want.Client, jsonQuoted(want.User), jsonQuoted(request), want.Status, want.Bytes, jsonQuoted(want.Agent)))
	})
}

func compare(t *rapid.T, f *format, want Record, line string) {
	var d draft
	var got Record
	if err := f.request(line, &d, &got); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		t.Fatalf("%q\n got %#v\nwant %#v", line, got, want)
	}
}

func nginxQuoted(text string) string {
	var out strings.Builder
	for _, c := range []byte(text) {
		if c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			fmt.Fprintf(&out, `\x%02X`, c)
		} else {
			out.WriteByte(c)
		}
	}
	return `"` + out.String() + `"`
}

func apacheQuoted(text string) string {
	return strings.NewReplacer(`\\`, `\\`, `\X22`, `\"`).Replace(strings.NewReplacer(`\x5C`, `\\`, `\x22`, `\"`, `\x0A`, `\n`).
		Replace(nginxQuoted(text)))
}

func jsonQuoted(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			out.WriteString(`\` + string(r))
		case r > 0xffff:
			fmt.Fprintf(&out, `\u%04x\u%04X`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		case r < 0x20 || rand.IntN(2) == 0:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	return `"` + out.String() + `"`
}

func TestLinesAllocateLittle(t *testing.T) {
	for _, sample := range samples {
		lines := strings.Split(sample.text, "\n")
		line := lines[len(lines)-1]
		f := formatOf(t, sample.format, lines)
		d, r := &draft{}, &Record{}
		if got := testing.AllocsPerRun(1000, func() {
			if err := f.request(strings.Clone(line), d, r); err != nil {
				t.Fatal(err)
			}
		}); got > 2 && sample.format != "ratelimit" { // whose lines have lists
			t.Errorf("%s: %.1f allocations a line", sample.format, got)
		}
	}
}

// formatOf is the format of a name for lines.
func formatOf(t testing.TB, name string, lines []string) format {
	t.Helper()
	list, err := candidates(Options{Format: name})
	if err != nil {
		t.Fatal(err)
	}
	if list[0].prepare != nil {
		list[0], _ = list[0].prepare(lines)
	}
	return list[0]
}
