package accesslog

import (
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"
)

// benchLines is a log of many lines as nginx writes them for browsers: 250 bytes each.
func benchLines(n int) string {
	var out strings.Builder
	begin := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for i := range n {
		fmt.Fprintf(&out, `198.51.%d.%d - - [%s] "GET /shop/articles/%d?page=%d HTTP/1.1" 200 %d "https://shop.example.com/" `+
			`"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36"`+"\n",
			i>>8&0xff, i&0xff, begin.Add(time.Duration(i)*time.Millisecond).Format("02/Jan/2006:15:04:05 -0700"), i, i%7, i*37%90000)
	}
	return out.String()
}

const benchJSON = `{"time_iso8601":"2026-11-20T00:00:%02d+00:00","remote_addr":"198.51.100.%d","request_method":"GET",` +
	`"request_uri":"/shop/articles/%d?page=1","status":200,"body_bytes_sent":%d,"request_time":0.012,` +
	`"http_host":"shop.example.com","http_user_agent":"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36"}`

func BenchmarkCombined(b *testing.B) { benchmark(b, benchLines(200_000)) }

func BenchmarkJSON(b *testing.B) {
	var out strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&out, benchJSON+"\n", i/4000%60, i%256, i, i)
	}
	benchmark(b, out.String())
}

// processorTime is what the process used, its garbage collection included; other processes do not disturb it.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// benchmark reads a log as a whole: lines, parsing, sorting.
func benchmark(b *testing.B, text string) {
	name := write(b, "a.log", text)
	b.ReportAllocs()
	before, n := processorTime(), 0
	for b.Loop() {
		l := open(b, Options{}, name)
		var r Record
		for {
			err := l.Next(&r)
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		l.Close()
	}
	b.ReportMetric(float64(n)/(processorTime()-before).Seconds(), "lines/s")
}
