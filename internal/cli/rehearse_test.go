package cli

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/internal/accesslog"
	"github.com/weirproject/weir/internal/backtest"
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/server/admin"
	"github.com/weirproject/weir/rules"
)

func rulesOf(t *testing.T, text string) (*rules.File, *rules.Set) {
	t.Helper()
	file, err := rules.Parse("weir.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, set
}

// rehearsal is one of a limit a minute on so many requests of one client, a second apart.
func rehearsal(t *testing.T, limit, requests int) *admin.Rehearsal {
	t.Helper()
	var text bytes.Buffer
	z := gzip.NewWriter(&text)
	for i := range requests {
		fmt.Fprintf(z, "203.0.113.7 - - [20/Nov/2026:10:%02d:%02d +0000] \"GET /a HTTP/1.1\" 200 1 \"-\" \"b\"\n", i/60, i%60)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(name, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	r := &admin.Rehearsal{Log: log, Name: "access.log.gz"}
	r.File, r.Set = rulesOf(t, fmt.Sprintf("rules: [{name: per-ip, key: [client.ip], limit: fixed_window %d/1m}]", limit))
	return r
}

func setupOf(t *testing.T) *engine.Setup {
	t.Helper()
	clients, err := clientaddr.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &engine.Setup{Clients: clients}
}

func TestUploadedLogIsReplayed(t *testing.T) {
	r := rehearsal(t, 10, 120)
	_, r.Against = rulesOf(t, "rules: [{name: per-ip, key: [client.ip], limit: fixed_window 40/1m}]")
	r.Sweep, r.Good = "per-ip=10/1m,30/1m", "status=200"
	report, err := rehearse(t.Context(), setupOf(t), r)
	if err != nil {
		t.Fatal(err)
	}
	if report.Total.Refused != 100 || report.Against.NewlyRefused != 60 || report.Log.Files[0].Name != "access.log.gz" {
		t.Errorf("%d refused, %d newly, of %v; want 100, 60 of access.log.gz", report.Total.Refused, report.Against.NewlyRefused,
			report.Log.Files)
	}
	if points := report.Sweeps[0].Points; points[0].Refused != 100 || points[1].Refused != 60 {
		t.Errorf("the sweep is %+v, want 100 and 60 refused", points)
	}
	if report.Good == nil || report.Good.ClientsRefused != 1 {
		t.Errorf("good is %+v, want one client refused", report.Good)
	}
}

func TestUploadedLogHasBounds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*admin.Rehearsal)
		want   string
	}{
		"sweep":  {func(r *admin.Rehearsal) { r.Sweep = "per-ip=5/1m..200/1m:13" }, "sweep has 13 limits; allowed: 12"},
		"rule":   {func(r *admin.Rehearsal) { r.Propose = "other" }, `"other"`},
		"good":   {func(r *admin.Rehearsal) { r.Good = "/etc/passwd" }, `good has "/etc/passwd"`}, // never a file
		"format": {func(r *admin.Rehearsal) { r.Format = "morse" }, `"morse"`},
		"no log": {func(r *admin.Rehearsal) { r.Log.Seek(0, io.SeekEnd); r.Log.Close() }, "closed"},
	} {
		r := rehearsal(t, 10, 1)
		c.change(r)
		if _, err := rehearse(t.Context(), setupOf(t), r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// An endless source has a request of the same client for ever.
type endless struct{ backtest.Source }

func (endless) Next(*accesslog.Record) error { return nil }

func TestUploadedLogHasAMaximumOfLinesAndMemory(t *testing.T) {
	s := &considerate{Source: endless{}, room: 1 << 62}
	n, err := 0, error(nil)
	for ; err == nil; n++ {
		err = s.Next(nil)
	}
	if n != rehearsedLines+1 || !strings.Contains(err.Error(), "log has over 2000000 lines") {
		t.Errorf("after %d lines: %v", n, err)
	}
	s = &considerate{Source: endless{}, room: 1}
	for n, err = 0, nil; err == nil; n++ {
		err = s.Next(nil)
	}
	if n != 8192 || !strings.Contains(err.Error(), "384 MB") {
		t.Errorf("over the maximum of memory, after %d lines: %v", n, err)
	}
}
