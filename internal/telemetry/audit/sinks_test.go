package audit

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/rotated"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// numbered are records with the request ids from from to below to, each a second after the other.
func numbered(from, to int) (list []Record) {
	for i := from; i < to; i++ {
		list = append(list, Record{At: noon.Add(time.Duration(i) * time.Second), Node: "n1", Outcome: "refused",
			Reason: "limit_exceeded", Rule: "ip", Key: "client.ip=9:192.0.2.1", RequestID: fmt.Sprint(i),
			Method: "GET", Path: "/a", Client: "192.0.2.1", Wait: time.Second})
	}
	return list
}

func write(t *testing.T, s Sink, list []Record) {
	t.Helper()
	if err := s.Write(t.Context(), list); err != nil {
		t.Fatal(err)
	}
}

// ids are the first and the last request id, and how many there are.
func ids(list []Record) string {
	if len(list) == 0 {
		return "none"
	}
	return fmt.Sprintf("%s-%s: %d", list[0].RequestID, list[len(list)-1].RequestID, len(list))
}

func TestFileIsRotatedAndFollowed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	sink, err := NewFileSink(name, 4000) // about 20 records
	if err != nil {
		t.Fatal(err)
	}
	write(t, sink, numbered(0, 10))
	reader, err := OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if list, err := reader.Last(t.Context(), &Filter{}, 5); err != nil || ids(list) != "5-9: 5" {
		t.Fatalf("last: %s, %v", ids(list), err)
	}
	for n := 10; n < 200; n += 10 {
		write(t, sink, numbered(n, n+10))
		if list, err := reader.Next(t.Context(), &Filter{}); err != nil || ids(list) != fmt.Sprintf("%d-%d: 10", n, n+9) {
			t.Fatalf("next: %s, %v", ids(list), err)
		}
	}
	sink.Close()
	files, _ := filepath.Glob(name + "*")
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || info.Size() > 4000 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %d bytes, mode %v, %v", file, info.Size(), info.Mode(), err)
		}
	}
	if len(files) != len(rotated.Names("")) {
		t.Errorf("%d files, want %d", len(files), len(rotated.Names("")))
	}
	list, err := reader.Last(t.Context(), &Filter{Since: noon.Add(150 * time.Second)}, 1000)
	if err != nil || ids(list) != "150-199: 50" || list[0] != numbered(150, 151)[0] {
		t.Errorf("since: %s, %v, %+v", ids(list), err, list[:1])
	}
}

func TestTornLineIsSkipped(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(name, []byte("{\"at\":\"2026-11-22T12:0"), 0o600); err != nil {
		t.Fatal(err)
	}
	sink, err := NewFileSink(name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	write(t, sink, numbered(0, 3))
	if err := os.WriteFile(name+".1", []byte(strings.Repeat("x", 3*maxLine)+"\n{}\nnull\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if list, err := reader.Last(t.Context(), &Filter{}, 10); err != nil || ids(list) != "0-2: 3" {
		t.Errorf("%s, %v", ids(list), err)
	}
}

func TestFileThatIsNone(t *testing.T) {
	if _, err := NewFileSink(t.TempDir(), 1); err == nil {
		t.Error("a directory is accepted")
	}
	if _, err := NewFileSink(os.DevNull, 1); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a device: %v", err)
	}
}

func TestStreamIsTrimmedAndRead(t *testing.T) {
	server := redistest.Start(t)
	sink := NewStreamSink(server.URL(), "audit", 500)
	defer sink.Close()
	reader, err := OpenStream(t.Context(), server.URL(), "audit")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if list, err := reader.Last(t.Context(), &Filter{}, 5); err != nil || ids(list) != "none" {
		t.Fatalf("empty: %s, %v", ids(list), err)
	}
	for n := 0; n < 3000; n += 50 {
		write(t, sink, numbered(n, n+50))
		if list, err := reader.Next(t.Context(), &Filter{}); err != nil || ids(list) != fmt.Sprintf("%d-%d: 50", n, n+49) {
			t.Fatalf("next: %s, %v", ids(list), err)
		}
	}
	if n := server.Do("XLEN", "audit").(int64); n < 500 || n > 700 {
		t.Errorf("%d entries, want about 500", n)
	}
	list, err := reader.Last(t.Context(), &Filter{Rule: "ip", Since: noon.Add(2700 * time.Second)}, 250)
	if err != nil || ids(list) != "2750-2999: 250" || list[0] != numbered(2750, 2751)[0] {
		t.Errorf("last: %s, %v, %+v", ids(list), err, list[:1])
	}
}

// TestRefusalsLeaveOtherRecords: neither refusals nor bans, which clients cause, push out what operators did, and the
// reader has all of them in the order of time.
func TestRefusalsLeaveOtherRecords(t *testing.T) {
	server := redistest.Start(t)
	sink := NewStreamSink(server.URL(), "audit", 100)
	defer sink.Close()
	reader, err := OpenStream(t.Context(), server.URL(), "audit")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var outcomes []string
	for i, outcome := range []string{"block", "degraded", "alert", "ban"} {
		outcomes = append(outcomes, outcome)
		write(t, sink, []Record{{At: noon.Add(time.Duration(i) * time.Second), Outcome: outcome}})
	}
	for n := 4; n < 1004; n += 50 {
		write(t, sink, numbered(n, n+50))
	}
	list, err := reader.Last(t.Context(), &Filter{}, 1000)
	if err != nil || len(list) < 104 || ids(list[4:]) != fmt.Sprintf("%d-1003: %d", 1004-(len(list)-4), len(list)-4) {
		t.Fatalf("%s, %v", ids(list), err)
	}
	for i, want := range outcomes {
		if list[i].Outcome != want {
			t.Errorf("record %d is %s, want %s", i, list[i].Outcome, want)
		}
	}
	for n := 0; n < 1000; n += 50 {
		bans := numbered(2000+n, 2050+n)
		for i := range bans {
			bans[i].Outcome, bans[i].Reason = "ban", ""
		}
		write(t, sink, bans)
	}
	write(t, sink, append(numbered(2010, 2012), Record{At: noon.Add(2010*time.Second + 1), Outcome: "lift"}))
	list, err = reader.Next(t.Context(), &Filter{Until: noon.Add(2020 * time.Second)})
	if err != nil || ids(list) != "2010-2011: 3" || list[1].Outcome != "lift" {
		t.Errorf("next: %+v, %v", list, err)
	}
	for _, outcome := range outcomes[:3] {
		if list, err := reader.Last(t.Context(), &Filter{Outcome: outcome}, 10); err != nil || len(list) != 1 {
			t.Errorf("after the bans %d records are %s, %v", len(list), outcome, err)
		}
	}
}

func TestRepeatedWriteAddsNothing(t *testing.T) {
	server := redistest.Start(t)
	sink := NewStreamSink(server.URL(), "audit", 1000).(*streamSink)
	defer sink.Close()
	write(t, sink, numbered(0, 10))
	sink.batch-- // as if the answer had been lost
	write(t, sink, numbered(0, 10))
	write(t, sink, numbered(10, 20))
	if n := server.Do("XLEN", "audit"); n != int64(20) {
		t.Errorf("%v entries, want 20", n)
	}
}

func TestStreamOutlastsAnOutage(t *testing.T) {
	server := redistest.Start(t)
	sink := NewStreamSink(server.URL(), "audit", 1000).(*streamSink)
	sink.timeout = 300 * time.Millisecond
	log := New(Config{Keys: Shown, Sinks: []Sink{sink}, Log: quiet})
	total := int64(0)
	add := func() {
		log.add(&entry{at: time.Now()}, named)
		total++
	}
	add()
	redistest.Await(t, "the first record", func() bool { return log.Counts()[0].Written == 1 })
	server.Stop() // it takes the calls, and answers later
	for range 100 {
		add()
	}
	redistest.Await(t, "a failed write", func() bool { return log.outlets[0].failures.Load() > 0 })
	server.Cont()
	add()
	redistest.Await(t, "all records", func() bool { return log.Counts()[0].Written == total })
	log.Close()
	if c := log.Counts()[0]; c.Lost != 0 || server.Do("XLEN", "audit") != total {
		t.Errorf("%+v, %v entries, want %d", c, server.Do("XLEN", "audit"), total)
	}
}

func TestClusterKeysAreInOneSlot(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	sink := NewStreamSink(cluster.URL(), "weir:audit", 1000)
	defer sink.Close()
	write(t, sink, numbered(0, 10))
	reader, err := OpenStream(t.Context(), cluster.URL(), "weir:audit")
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if list, err := reader.Last(t.Context(), &Filter{}, 100); err != nil || ids(list) != "0-9: 10" {
		t.Errorf("%s, %v", ids(list), err)
	}
}

// TestAMovedFileIsOpenedAnew, as after logrotate, and one that was deleted.
func TestAMovedFileIsOpenedAnew(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	sink, err := NewFileSink(name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	write(t, sink, numbered(0, 3))
	if err := os.Rename(name, name+".moved"); err != nil {
		t.Fatal(err)
	}
	write(t, sink, numbered(3, 5))
	lines := func(name string, want int) {
		t.Helper()
		text, err := os.ReadFile(name)
		if n := strings.Count(string(text), "\n"); n != want || err != nil {
			t.Errorf("%s has %d lines, %v; want %d", name, n, err, want)
		}
	}
	lines(name+".moved", 3)
	lines(name, 2)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	write(t, sink, numbered(5, 9))
	lines(name, 4)
}

// TestAnUnsteadySinkIsLoggedRarely: one failed attempt is no outage, and outages in a row are one pair of lines a minute.
func TestAnUnsteadySinkIsLoggedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		o := &outlet{sink: &memory{}, log: slog.New(slog.NewTextHandler(&text, nil))}
		failure := errors.New("connection reset")
		fail := func(times int) {
			wait := time.Duration(0)
			for range times {
				wait = o.retry(wait, failure)
				time.Sleep(wait)
			}
			o.retry(wait, nil)
		}
		said := func(want int) {
			t.Helper()
			if n := strings.Count(text.String(), "\n"); n != want {
				t.Errorf("%d lines, want %d:\n%s", n, want, text.String())
			}
		}
		for range 50 {
			fail(1)
		}
		said(0)
		for range 20 {
			fail(2)
		}
		said(2)
		fail(30) // over a minute
		said(4)
	})
}
