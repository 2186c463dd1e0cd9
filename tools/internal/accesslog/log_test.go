package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// write writes a file of the test and is its name.
func write(t testing.TB, name, text string) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// all are the requests of a log.
func all(t testing.TB, l *Log) (list []Record) {
	t.Helper()
	for {
		var r Record
		err := l.Next(&r)
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
}

func open(t testing.TB, o Options, names ...string) *Log {
	t.Helper()
	l, err := Open(names, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// line is a line of common at a second of a day.
func line(second int, target string) string {
	at := time.Date(2026, 11, 20, 0, 0, second, 0, time.UTC)
	return fmt.Sprintf("192.0.2.1 - - [%s] \"GET %s HTTP/1.1\" 200 5\n", at.Format("02/Jan/2006:15:04:05 -0700"), target)
}

func targets(list []Record) string {
	var out []string
	for _, r := range list {
		out = append(out, r.Target)
	}
	return strings.Join(out, " ")
}

func TestLinesAreSortedWithinTheWindow(t *testing.T) {
	text := line(5, "/e") + line(0, "/a") + line(3, "/c") + line(3, "/d") + line(1, "/b") + line(20, "/f") + line(2, "/late") +
		line(21, "/g")
	l := open(t, Options{Window: 10 * time.Second}, write(t, "a.log", text))
	list := all(t, l)
	if got := targets(list); got != "/a /b /c /d /e /late /f /g" {
		t.Errorf("order: %s", got)
	}
	for i := 1; i < len(list); i++ {
		if list[i].Time < list[i-1].Time {
			t.Errorf("time goes back at %s", list[i].Target)
		}
	}
	if file := l.Files()[0]; file.Late != 1 || file.Requests != 8 || file.Lines != 8 {
		t.Errorf("files: %+v", file)
	}
}

// TestOneWrongTimeHarmsNoOther: a clock that was wrong once moves that request alone.
func TestOneWrongTimeHarmsNoOther(t *testing.T) {
	for name, wrong := range map[string]string{"future": "2099", "past": "1999"} {
		text := ""
		for i := range 100 {
			text += line(3*i, fmt.Sprint("/", i))
			if i == 50 {
				text += strings.Replace(line(3*i, "/wrong"), "2026", wrong, 1)
			}
		}
		l := open(t, Options{}, write(t, "a.log", text))
		n := 0
		for _, r := range all(t, l) {
			if r.Target == "/wrong" {
				continue
			}
			if want := fmt.Sprint("/", n); r.Target != want || time.UnixMicro(r.Time).UTC().Second() != 3*n%60 {
				t.Errorf("%s: %s, want %s", name, show(r), want)
			}
			n++
		}
		if late := l.Files()[0].Late; late != 0 && name == "future" || late > 1 {
			t.Errorf("%s: %d requests are late", name, late)
		}
	}
}

func TestFilesAreMergedByTime(t *testing.T) {
	second := write(t, "b.log.gz", gzipped(line(100, "/c")+line(300, "/e")))
	first := write(t, "a.log", line(0, "/a")+line(200, "/d"))
	late := write(t, "c.log", line(5000, "/z"))
	empty := write(t, "empty.log", "\n\n")
	l, err := Open([]string{second, late, first, "-", empty}, strings.NewReader(line(50, "/b")), Options{})
	if err != nil {
		t.Fatal(err)
	}
	list := all(t, l)
	if got := targets(list); got != "/a /b /c /d /e /z" {
		t.Errorf("order: %s", got)
	}
	if list[0].File != 2 || list[1].File != 3 || list[3].Line != 2 {
		t.Errorf("files and lines: %+v", list)
	}
	if files := l.Files(); files[4].Format != "" || files[4].Lines != 2 || files[3].Name != "-" || files[1].Requests != 1 {
		t.Errorf("files: %+v", files)
	}
}

func gzipped(texts ...string) string {
	var out bytes.Buffer
	for _, text := range texts {
		z := gzip.NewWriter(&out)
		z.Write([]byte(text))
		z.Close()
	}
	return out.String()
}

// TestFilesOfSeveralParts: logrotate appends to compressed files.
func TestFilesOfSeveralParts(t *testing.T) {
	text := gzipped(line(0, "/a"), line(1, "/b"), line(2, "/c"))
	if got := targets(all(t, open(t, Options{}, write(t, "a", text)))); got != "/a /b /c" {
		t.Errorf("read %s", got)
	}
}

// TestATruncatedFileSaysHowFarItWasRead: the requests before the end are not lost.
func TestATruncatedFileSaysHowFarItWasRead(t *testing.T) {
	var text strings.Builder
	for i := range 20000 {
		text.WriteString(line(i, fmt.Sprint("/", i*7919%10007)))
	}
	for kind, whole := range map[string]string{"gzip": gzipped(text.String())} {
		l := open(t, Options{}, write(t, "a.log", whole[:len(whole)*3/4]))
		var r Record
		n, err := 0, error(nil)
		for ; err == nil; n++ {
			err = l.Next(&r)
		}
		want := fmt.Sprintf("the file is cut off (%s) after", kind)
		if n < 1000 || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d requests, then %v", kind, n, err)
		}
		if again := l.Next(&r); again != err {
			t.Errorf("%s: the error after it is %v", kind, again)
		}
	}
}

// TestAFileIsReadBeforeItsFirstTime: a line of the window may be earlier than the lines that told the format.
func TestAFileIsReadBeforeItsFirstTime(t *testing.T) {
	var one, two strings.Builder
	for i := range 2000 {
		one.WriteString(line(i, fmt.Sprint("/", i)))
	}
	for i := range 200 {
		two.WriteString(line(1000+i/10, "/x"))
	}
	two.WriteString(line(1000-30, "/early"))
	l := open(t, Options{}, write(t, "one", one.String()), write(t, "two", two.String()))
	list := all(t, l)
	at := slices.IndexFunc(list, func(r Record) bool { return r.Target == "/early" })
	if at != 971 || l.Files()[1].Late != 0 {
		t.Errorf("/early is request %d: %+v", at, l.Files()[1])
	}
}

func TestFewRequestsWait(t *testing.T) {
	o := order{window: 1e6, most: 10}
	for i := range 25 {
		slot := o.slot()
		o.record(slot).Time = int64(i)
		o.add(slot)
		if ready := o.ready(false); ready != (i >= 9) {
			t.Fatalf("after %d requests, the first one can go: %v", i+1, ready)
		}
		if i >= 9 {
			o.take(&Record{})
		}
	}
	if len(o.blocks) != 1 {
		t.Errorf("%d blocks", len(o.blocks))
	}
}

func TestLongLinesAreReadPast(t *testing.T) {
	long := line(1, "/"+strings.Repeat("x", maxLine))
	longest := line(2, "/"+strings.Repeat("x", maxLine-len(line(2, "/"))+1))
	l := open(t, Options{}, write(t, "a.log", line(0, "/a")+long+longest+line(3, "/b")))
	if list := all(t, l); len(list) != 3 || list[2].Line != 4 {
		t.Errorf("%d requests", len(list))
	}
	file := l.Files()[0]
	if file.Unread != 1 || len(file.Examples) != 1 || file.Examples[0].Why != errTooLong.Error() || file.Examples[0].Line != 2 {
		t.Errorf("files: %+v", file)
	}
	if len(file.Examples[0].Text) > maxExample {
		t.Errorf("the example has %d bytes", len(file.Examples[0].Text))
	}
}

func TestTextIsBounded(t *testing.T) {
	bomb := write(t, "bomb.gz", gzipped(line(0, "/a")+strings.Repeat("\x00", endless+maxLine)))
	if _, err := Open([]string{bomb}, nil, Options{}); err == nil || !strings.Contains(err.Error(), "this is no access log") {
		t.Errorf("a line without an end: %v", err)
	}
}

func TestUnreadLinesAreCountedWithTheReason(t *testing.T) {
	text := strings.Repeat(line(0, "/a"), 5) + "hello\x1b[2J\xff\n" + strings.Replace(line(1, "/b"), "GET /b HTTP/1.1", `\x16\x03\x01`, 1) +
		strings.Replace(line(1, "/b"), "GET /b HTTP/1.1", "-", 1) + strings.Replace(line(1, "/b"), " 200 ", " 2x0 ", 1) + "\n"
	l := open(t, Options{}, write(t, "a.log", text))
	if list := all(t, l); len(list) != 5 {
		t.Errorf("%d requests", len(list))
	}
	file := l.Files()[0]
	if file.Lines != 10 || file.Unread != 4 || len(file.Examples) != 4 {
		t.Errorf("files: %+v", file)
	}
	if got := file.Examples[0]; got.Text != "hello\x1b[2J\ufffd" || got.Line != 6 {
		t.Errorf("the first one that was not read is %+v", got)
	}
	for i, want := range []error{nil, errNotHTTP, errNotHTTP, errStatus} {
		if got := file.Examples[i].Why; want != nil && got != want.Error() {
			t.Errorf("line %d was not read because %s, want %v", file.Examples[i].Line, got, want)
		}
	}
}

// TestLinesWithoutARequestHaveAFormat: a port that is only scanned.
func TestLinesWithoutARequestHaveAFormat(t *testing.T) {
	text := `192.0.2.1 - - [10/Oct/2000:13:55:36 +0000] "\x16\x03" 400 0 "-" "-"` + "\n"
	l := open(t, Options{}, write(t, "a.log", text))
	if list, file := all(t, l), l.Files()[0]; len(list) != 0 || file.Format != "combined" || file.Unread != 1 {
		t.Errorf("%v: %+v", list, file)
	}
}

func TestOpenRefuses(t *testing.T) {
	good := write(t, "a.log", line(0, "/a"))
	for _, test := range []struct {
		name string
		o    Options
		want string
	}{
		{write(t, "b.log", "hello\nworld\n"), Options{}, `the format of "hello" is not known; tried were main, `},
		{write(t, "d.log", strings.Repeat("hello\n", 9)+line(0, "/a")), Options{}, `the format of "hello" is not known`},
		{write(t, "e.log", strings.Repeat("\n", 2000)+line(0, "/a")), Options{}, "1000 of the first 1000 lines are blank or too long"},
		{write(t, "f.log", strings.Replace(line(0, "/a"), "\n", ` "-" "-" "-"`, 1)), Options{Format: "combined"}, `0 have the format combined`},
		{good, Options{Format: "combined"}, `of the first 1 lines, 0 have the format combined`},
		{good, Options{Format: "squid"}, `the format "squid" is not known; allowed are auto, main,`},
		{good, Options{Format: "$remote_addr"}, "the format has no time"},
		{good, Options{Format: "$time_local$remote_addr"}, "nothing separates $time_local from $remote_addr"},
		{good, Options{Map: "ip=.ip"}, `map: "ip" is not known; allowed are agent,`},
		{good, Options{Map: "path=.ip"}, `map: there is no time`},
		{write(t, "c.xz", "\xfd7zXZ\x00abc"), Options{}, "is compressed with xz"},
		{write(t, "c.zst", "\x28\xb5\x2f\xfdabc"), Options{}, "zstdcat log.zst | weir backtest"},
		{t.TempDir(), Options{}, "is a directory"},
		{"missing.log", Options{}, "missing.log"},
		{"- -", Options{}, "the standard input (-) is given twice"},
		{"", Options{}, "no log is given"},
	} {
		if _, err := Open(strings.Fields(test.name), nil, test.o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: the error is %v; want %q in it", test.o, err, test.want)
		}
	}
}

func TestProgressReachesTheTotal(t *testing.T) {
	var read, total int64
	o := Options{Progress: func(r, t int64) { read, total = r, t }}
	a := write(t, "a.log", strings.Repeat(line(0, "/a"), 3000))
	b := write(t, "b.log.gz", gzipped(line(1, "/b")))
	l := open(t, o, a, b)
	if all(t, l); read != total || total == 0 {
		t.Errorf("%d of %d bytes were read", read, total)
	}
	l, err := Open([]string{a, "-"}, strings.NewReader(line(0, "/c")), o)
	if err != nil {
		t.Fatal(err)
	}
	if all(t, l); total != 0 {
		t.Errorf("the total is %d, and one of the files is the standard input", total)
	}
}
