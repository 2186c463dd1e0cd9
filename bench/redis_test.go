package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func redisForTest(t *testing.T) *server {
	t.Helper()
	quiet()
	s, err := startServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestRedisRowsLimit(t *testing.T) {
	s := redisForTest(t)
	all := redisAlgorithms(s)
	for _, r := range slices.Concat(redisRows(s), threeRows(s), aloneOf(all), sharedOf(all)) {
		if err := check(r); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
	}
}

func TestEachNameHasItsOwnKeyInRedis(t *testing.T) {
	s := redisForTest(t)
	names := newNames("", 500)
	all := redisAlgorithms(s)
	for _, r := range slices.Concat(redisRows(s), threeRows(s), aloneOf(all), sharedOf(all)) {
		if r.floor {
			continue
		}
		check(r) // it loads the script: go-zero's breaker opens on many NOSCRIPT at once
		if err := s.flush(); err != nil {
			t.Fatal(err)
		}
		p, err := r.open(handful)
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
			continue
		}
		if got := pass(p, names, fillers); got.granted != 500 {
			t.Errorf("%s: granted %d of 500 names: %v", r.name, got.granted, got.firstError)
		}
		p.Close()
		if keys := s.control.DBSize(context.Background()).Val(); keys < 500 || keys%500 != 0 {
			t.Errorf("%s: 500 names are %d keys", r.name, keys)
		}
	}
}

func TestEveryRedisRowIsMeasured(t *testing.T) {
	s := redisForTest(t)
	crew := newCrew(16)
	t.Cleanup(crew.stop)
	st := &stage{crew: crew, rounds: 2, slice: 5 * time.Millisecond, timed: true, used: s.usage, broken: map[string]string{}, board: board{}, log: io.Discard}
	rows := append(redisRows(s), threeRows(s)...)
	st.check(rows) // it loads the scripts, too
	for _, refused := range []bool{false, true} {
		if err := playRedis(st, s, rows, 200, refused, []int{1, 16}); err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if refused && !r.refuses {
				continue
			}
			for _, n := range []int{1, 16} {
				f, ok := st.board.get(r.name, column{200, refused, n})
				if !ok || median(f.cpu) <= 0 || f.p50 <= 0 || f.p99 < f.p50 {
					t.Errorf("%s, refused %v, %d goroutines: %+v", r.name, refused, n, f)
				}
			}
		}
	}
}

func TestRedisMemoryIsCounted(t *testing.T) {
	s := redisForTest(t)
	ctx := context.Background()
	bytes, err := weighRedis(s, []footprint{{"values of 1000 bytes", 5000, func(names *names) error {
		for i := range names.n {
			if err := s.control.Set(ctx, names.at(i), strings.Repeat("x", 1000), time.Hour).Err(); err != nil {
				return err
			}
		}
		return nil
	}}})
	if got := bytes["values of 1000 bytes"]; err != nil || got < 1000 || got > 1200 {
		t.Errorf("%v bytes a key, %v", got, err)
	}
}

func TestFootprintsStoreOneExpiringKeyForEachName(t *testing.T) {
	s := redisForTest(t)
	ctx := context.Background()
	for _, f := range footprints(s, 1) {
		if err := s.flush(); err != nil {
			t.Fatal(err)
		}
		if err := f.fill(newNames("", 20)); err != nil {
			t.Errorf("%s: %v", f.name, err)
			continue
		}
		keys := s.control.Keys(ctx, "*").Val()
		if len(keys) != 20 {
			t.Errorf("%s: 20 names are %d keys", f.name, len(keys))
		}
		for _, key := range keys {
			if s.control.PTTL(ctx, key).Val() <= 0 {
				t.Errorf("%s: %s never expires", f.name, key)
			}
		}
	}
}

func TestRedisTimeAndCallsAreCounted(t *testing.T) {
	s := redisForTest(t)
	before, err := s.usage()
	if err != nil {
		t.Fatal(err)
	}
	const busy = `for i = 1, 3000000 do end return 1`
	if err := s.control.Eval(context.Background(), busy, nil).Err(); err != nil {
		t.Fatal(err)
	}
	sha := s.control.ScriptLoad(context.Background(), returnOne).Val()
	for range 3 {
		s.control.EvalSha(context.Background(), sha, nil)
	}
	after, err := s.usage()
	if err != nil || after.cpu <= before.cpu || after.calls-before.calls != 3 {
		t.Errorf("a busy script and three short ones: %+v, then %+v, %v", before, after, err)
	}
}

func TestARedisWithKeysIsRefused(t *testing.T) {
	s := redisForTest(t)
	s.control.Set(context.Background(), "someone's", "data", 0)
	if _, err := connect(s.url); err == nil || !strings.Contains(err.Error(), "holds 1 keys") {
		t.Errorf("connected: %v", err)
	}
}

func TestRedisServerStopsWithTheRun(t *testing.T) {
	s, err := startServer()
	if err != nil {
		t.Fatal(err)
	}
	process := s.command.Process
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if err := process.Signal(syscall.Signal(0)); err == nil {
		t.Errorf("redis-server %d is still there", process.Pid)
	}
}

func TestRedisBarsReadTheirRows(t *testing.T) {
	c := column{tenThousand, false, crowd}
	r := &report{board: board{}, redis: map[string]float64{
		bucketFootprint: 1, redisRateFootprint: 1, logFootprint: 1, zsetFootprint: 4, counterFootprint: 1, hashFootprint: 1,
	}}
	for name, f := range map[string]figure{
		weirRedisName:      steady(200, 0, 500),
		redisRateName:      steady(100, 0, 1000),
		shortestName:       steady(200, 0, 400),
		threeTogetherName:  steady(200, 0, 700),
		threePipelinedName: steady(100, 0, 1000),
	} {
		r.board.put(name, c, f)
	}
	for _, b := range r.redisBars() {
		if b.met() != "met" {
			t.Errorf("%s: %s: %s", b.what, b.measured, b.met())
		}
	}
	r.board, r.redis = board{}, nil
	for _, b := range r.redisBars() {
		if b.met() != "not measured" {
			t.Errorf("%s: %s without figures", b.what, b.met())
		}
	}
}

func TestTableIsMarkdown(t *testing.T) {
	var out strings.Builder
	table := table{head: []string{"row", "µs"}}
	table.add("a", "1")
	table.add("bcde", "1234")
	table.print(&out)
	want := "| row  |   µs |\n| ---- | ---: |\n| a    |    1 |\n| bcde | 1234 |\n\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}
