//go:build unix

package redissource

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/redistest"
)

// TestMissingKeysAreReadByName: SCAN misses a key that moves between two nodes while
// it goes on, which one of another prefix stands for here.
func TestMissingKeysAreReadByName(t *testing.T) {
	server := redistest.Start(t)
	server.Do("HSET", "moved", "f", "v")
	server.Do("HSET", prefix+"a", "f", "v")
	client, err := redisconn.OpenClient(t.Context(), server.URL(), redisconn.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s := newScan(prefix, 10, map[string]*entry{"moved": {last: new(Hash)}, prefix + "deleted": {last: new(Hash)}})
	if _, err := s.run(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if len(s.found) != 2 || s.found["moved"].fields["f"] != "v" || s.found[prefix+"a"].fields["f"] != "v" {
		t.Errorf("found %v", s.found)
	}
}

func TestPatterns(t *testing.T) {
	server := redistest.Start(t)
	odd := `a*b?c[d]e^f\g{h}:`
	server.Do("HSET", odd+"rule", "f", "v")
	if keys := server.Do("KEYS", escape(odd)+"*").([]any); len(keys) != 1 {
		t.Errorf("%s finds %v", escape(odd), keys)
	}
	if keys := server.Do("KEYS", escape("a*")+"*").([]any); len(keys) != 1 {
		t.Errorf("%s finds %v", escape("a*"), keys)
	}
	if keys := server.Do("KEYS", escape("?")+"*").([]any); len(keys) != 0 {
		t.Errorf("%s finds %v", escape("?"), keys)
	}
}

// TestTheInboxIsBounded: what does not fit is not lost, for all hashes are read then.
func TestTheInboxIsBounded(t *testing.T) {
	b := newInbox(newTable(prefix, 10).all)
	put := func(n int, text string) {
		for range n {
			b.put(text)
		}
	}
	expectTaken := func(superseded, later int, all bool) (messages []string) {
		t.Helper()
		gotSuperseded, gotLater, gotAll := b.take()
		if len(gotSuperseded) != superseded || len(gotLater) != later || gotAll != all {
			t.Errorf("%d, %d, %v are taken; want %d, %d, %v", len(gotSuperseded), len(gotLater), gotAll, superseded, later, all)
		}
		return gotLater
	}
	put(queued, "{}")
	expectTaken(0, queued, false)
	put(queued+3, "{}")
	put(3, reloadAll)
	expectTaken(queued, 0, true)
	expectTaken(0, 0, false)
	put(2, "{}")
	put(1, reloadAll)
	put(3, "{}") // a reading that begins now does not undo these
	expectTaken(2, 3, true)
	b.put(`{"id":"a","deleted":true}` + strings.Repeat(" ", MaxMessage))
	last := expectTaken(0, 1, false)[0]
	table := newTable(prefix, 10)
	read(table, hashes(map[string]string{"a": ""}))
	table.receive(last)
	if len(last) > 200 {
		t.Errorf("%d bytes of a message that is too long are kept", len(last))
	}
	expect(t, table, "a 100/1m", "65561 bytes; at most 65536")
}
