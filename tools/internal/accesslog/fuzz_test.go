package accesslog

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

// FuzzFormats: whatever a line is, each format reads it or says why not, and the same again.
func FuzzFormats(f *testing.F) {
	var formats []format
	for _, sample := range samples {
		f.Add(sample.text)
		formats = append(formats, formatOf(f, sample.format, strings.Split(sample.text, "\n")))
	}
	for _, c := range nginxFormats {
		t, err := compile(c.directive)
		if err != nil {
			f.Fatal(err)
		}
		formats = append(formats, t.format(End))
	}
	f.Fuzz(func(t *testing.T, line string) {
		for i := range formats {
			var d draft
			var r, again Record
			err := formats[i].request(line, &d, &r)
			d.untimed = 0
			if second := formats[i].request(line, &d, &again); fmt.Sprint(err) != fmt.Sprint(second) {
				t.Fatalf("%s: %v, then %v", formats[i].name, err, second)
			}
			if err != nil {
				continue
			}
			if fmt.Sprint(r) != fmt.Sprint(again) {
				t.Fatalf("%s: %v, then %v", formats[i].name, r, again)
			}
			if r.Took < Unknown || r.Bytes < Unknown || r.Status != Unknown && (r.Status < 100 || r.Status > 999) || r.Client.Zone() != "" {
				t.Fatalf("%s: %q is read as %+v", formats[i].name, line, r)
			}
		}
	})
}

// FuzzFiles: a file of any bytes is read to its end or to an error, and time does not go back.
func FuzzFiles(f *testing.F) {
	for _, sample := range samples {
		f.Add([]byte(sample.text+"\n"+sample.text), "")
	}
	f.Add([]byte(gzipped(line(0, "/a")+line(1, "/b"))), "common")
	f.Add([]byte("{\"t\":1,\"u\":2}\n"), "$msec $status")
	f.Add([]byte("1 2\n"), "'$msec ' \"$status\"")
	f.Add([]byte("[10/Oct/2000:13:55:36 -0700] 2\n"), "%t %{a}i%%")
	f.Fuzz(func(t *testing.T, file []byte, named string) {
		l, err := Open([]string{"-"}, bytes.NewReader(file), Options{Format: named})
		if err != nil {
			return
		}
		var r Record
		for last, n := int64(0), int64(0); ; n++ {
			err := l.Next(&r)
			if err == io.EOF {
				if got := l.Files()[0]; got.Requests != n || got.Lines < n+got.Unread {
					t.Fatalf("%d requests: %+v", n, got)
				}
				return
			}
			if err != nil {
				return
			}
			if n > 0 && r.Time < last {
				t.Fatalf("time goes back from %d to %d", last, r.Time)
			}
			last = r.Time
		}
	})
}
