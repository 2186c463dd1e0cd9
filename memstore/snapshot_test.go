package memstore_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

var everySpec = []weir.Spec{
	weir.TokenBucket{Capacity: 10, Refill: 10, Period: time.Hour},
	weir.TokenBucket{Capacity: 10, Refill: 7, Period: time.Hour, Overdraft: 3},
	weir.TokenBucket{Capacity: 10, Refill: 3, Period: time.Hour, Mode: weir.Step},
	weir.FixedWindow{Limit: 10, Window: time.Hour},
	weir.Calendar{Limit: 10, Unit: weir.Day, Zone: "Asia/Shanghai"},
	weir.SlidingLog{Limit: 10, Window: time.Hour},
	weir.SlidingCounter{Limit: 10, Window: time.Hour, Slices: 6},
	weir.Concurrency{Limit: 10, TTL: time.Hour},
	weir.Fair{Of: weir.FixedWindow{Limit: 10, Window: time.Hour}},
	weir.Fair{Of: weir.Calendar{Limit: 10, Unit: weir.Day}},
	weir.Fair{Of: weir.Concurrency{Limit: 10, TTL: time.Hour}},
}

// used is a store in which every kind of limit was charged.
func used(t testing.TB) *memstore.Store {
	store, _ := driven(t, 1000)
	for i, spec := range everySpec {
		l, err := weir.New(store, name(i), spec)
		if err != nil {
			t.Fatal(err)
		}
		charge(t, l)
	}
	return store
}

func charge(t testing.TB, l *weir.Limiter) {
	t.Helper()
	for i := range 3 {
		if _, err := l.Reserve(t.Context(), longKey, int64(1+i)); err != nil {
			t.Fatal(err)
		}
	}
}

const longKey = "a key that is too long for a node \x00\xff"

func peek(t testing.TB, l *weir.Limiter) weir.Decision {
	t.Helper()
	answer, err := l.Peek(t.Context(), longKey)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Decision
}

func TestSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotas")
	for _, spec := range everySpec {
		store, _ := driven(t, 1000)
		before := limiter(t, store, spec)
		charge(t, before)
		if err := store.Save(path); err != nil {
			t.Fatal(err)
		}
		loaded, _ := driven(t, 1000)
		if err := loaded.Load(path); err != nil {
			t.Fatal(err)
		}
		after := limiter(t, loaded, spec)
		if was, is := peek(t, before), peek(t, after); was != is {
			t.Errorf("%s: %+v was saved, %+v was loaded", spec, was, is)
		}
	}
	if files, _ := filepath.Glob(path + "*"); len(files) != 1 {
		t.Errorf("saving left %v", files)
	}
}

// TestSnapshotTellsMembersApart: the members of a fair limit have after a restart what they had before.
func TestSnapshotTellsMembersApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotas")
	for _, of := range []weir.Spec{weir.FixedWindow{Limit: 100, Window: time.Hour}, weir.Concurrency{Limit: 100, TTL: time.Hour}} {
		limit := weir.MustLimit("shared", weir.Fair{Of: of, MaxKeys: 20})
		left := func(store weir.Store, member int, cost int64) int64 {
			c := weir.Claim{Key: "all", Limit: limit, Cost: cost, Member: name(member)}
			if cost > 0 && limit.Leases() {
				c.Lease = weir.NewLeaseID()
			}
			var d [1]weir.Decision
			if _, err := store.Decide(t.Context(), []weir.Claim{c}, 1, d[:]); err != nil {
				t.Fatal(err)
			}
			return d[0].Remaining
		}
		store, _ := driven(t, 1000)
		for member := range 20 { // half of the ids are negative, and nearly all are larger than units
			left(store, member, int64(1+member%4))
		}
		if err := store.Save(path); err != nil {
			t.Fatal(err)
		}
		loaded, _ := driven(t, 1000)
		if err := loaded.Load(path); err != nil {
			t.Fatal(err)
		}
		for member := range 21 {
			if was, is := left(store, member, 0), left(loaded, member, 0); was != is {
				t.Errorf("%v: member %d had %d left, and has %d", of, member, was, is)
			}
		}
	}
}

func TestSnapshotLeavesOutWhatIsOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotas")
	store, now := driven(t, 1000)
	allow(t, limiter(t, store, weir.PerSecond(1)), "gone soon")
	if err := store.Save(path); err != nil {
		t.Fatal(err)
	}
	later, clock := driven(t, 1000)
	clock.Store(now.Load() + 1_000_000)
	if err := later.Load(path); err != nil {
		t.Fatal(err)
	}
	if keys := later.Stats().Keys; keys != 0 {
		t.Errorf("%d keys were loaded after their time", keys)
	}
}

func TestDamagedSnapshots(t *testing.T) {
	store := used(t)
	path := filepath.Join(t.TempDir(), "quotas")
	if err := store.Save(path); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"empty":         {},
		"foreign":       []byte("*2\r\n$3\r\nSET\r\n"),
		"foreign JSON":  []byte(`{"format":"another","version":1}` + "\n"),
		"newer version": bytes.Replace(whole, []byte(`"version":2`), []byte(`"version":3`), 1),
		"cut short":     whole[:len(whole)/2],
		"one bit":       flipped(whole, len(whole)/2),
		"no foot":       whole[:bytes.LastIndexByte(whole[:len(whole)-1], '\n')+1],
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			fresh, _ := driven(t, 1000)
			err := fresh.Load(path)
			if !errors.Is(err, weir.ErrForeignState) {
				t.Errorf("the error is %v", err)
			}
			if keys := fresh.Stats().Keys; keys != 0 {
				t.Errorf("%d keys of a damaged file were loaded", keys)
			}
		})
	}
	full, _ := driven(t, 3)
	os.WriteFile(path, whole, 0o600)
	if err := full.Load(path); err == nil || !strings.Contains(err.Error(), "WithMaxKeys") {
		t.Errorf("too many keys: the error is %v", err)
	}
	if err := store.Load(path); err == nil {
		t.Error("a store in use loaded a snapshot over its keys")
	}
}

func flipped(text []byte, at int) []byte {
	text = bytes.Clone(text)
	text[at] ^= 1
	return text
}

// Loading any file is an error or leaves a store that can decide.
func FuzzLoad(f *testing.F) {
	store := used(f)
	path := filepath.Join(f.TempDir(), "quotas")
	if err := store.Save(path); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(whole) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		fresh, _ := driven(t, 1000)
		if memstore.LoadLines(fresh, `{"name":"test","spec":"sliding_counter 10/1h slices 6"}`+"\n"+`{"name":"b","spec":"concurrency 10 ttl 1h"}`+"\n"+string(line)) != nil {
			return
		}
		for _, spec := range everySpec {
			peek(t, limiter(t, fresh, spec))
		}
		if err := fresh.Save(filepath.Join(t.TempDir(), "again")); err != nil {
			t.Error(err)
		}
	})
}
