package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/redisstore"
)

// A footprint is a state whose memory in Redis is measured.
type footprint struct {
	name string
	keys int
	fill func(*names) error
}

const (
	bucketFootprint    = "weir token bucket"
	fractionFootprint  = "weir token bucket, 7 an hour (a fraction of a microsecond beside)"
	redisRateFootprint = "redis_rate"
	logFootprint       = "weir sliding_log, 100 grants"
	zsetFootprint      = "ZSET with 100 UUID members"
	counterFootprint   = "weir sliding_counter of 60 slices, all in use"
	hashFootprint      = "HASH of 60 counters"
)

// footprints are measured one after the other; thousands scales those with large states.
func footprints(s *server, thousands int) []footprint {
	return []footprint{
		{bucketFootprint, 100_000, s.fillWeir(bucketOf(handful), 1)},
		{fractionFootprint, 100_000, s.fillWeir(weir.PerHour(7), 1)},
		{redisRateFootprint, 100_000, s.fillRedisRate},
		{logFootprint, thousands * 1000, s.fillWeir(weir.SlidingLog{Limit: 100, Window: window}, 100)},
		{zsetFootprint, thousands * 1000, s.fillSets},
		{counterFootprint, thousands * 1000, s.fillSlices},
		{hashFootprint, thousands * 1000, s.fillHashes},
	}
}

// weighRedis is the growth of used_memory a key. Scripts, connections and their buffers are
// there before it counts: a few keys are entered first, and flushed.
func weighRedis(s *server, all []footprint) (map[string]float64, error) {
	bytes := map[string]float64{}
	for _, f := range all {
		grown, err := s.weigh(f)
		if err != nil {
			return bytes, fmt.Errorf("%s: %w", f.name, err)
		}
		bytes[f.name] = grown
	}
	return bytes, s.flush()
}

func (s *server) weigh(f footprint) (float64, error) {
	if err := s.fillAfresh(f, 64); err != nil {
		return 0, err
	}
	if err := s.flush(); err != nil {
		return 0, err
	}
	before, err := s.memory()
	if err != nil {
		return 0, err
	}
	if err := f.fill(newNames("", f.keys)); err != nil {
		return 0, err
	}
	after, err := s.memory()
	return float64(after-before) / float64(f.keys), err
}

func (s *server) fillAfresh(f footprint, keys int) error {
	if err := s.flush(); err != nil {
		return err
	}
	return f.fill(newNames("", keys))
}

const fillers = 16

// fillPeer asks for all names, times over, and wants every question granted.
func fillPeer(p Peer, names *names, times int) error {
	for range times {
		t := pass(p, names, fillers)
		if t.granted != int64(names.n) {
			return fmt.Errorf("granted %d of %d: %v", t.granted, names.n, t.firstError)
		}
	}
	return nil
}

func (s *server) fillWeir(spec weir.Spec, times int) func(*names) error {
	return func(names *names) error {
		store, err := s.weirStore()
		if err != nil {
			return err
		}
		p, err := limiterPeer(store, handful, func(Quota) weir.Spec { return spec })
		if err != nil {
			return err
		}
		defer p.Close()
		return fillPeer(p, names, times)
	}
}

// fillSlices drives the clock from slice to slice, until all 61 that the counter keeps
// are in use.
func (s *server) fillSlices(names *names) error {
	var now atomic.Int64
	now.Store(time.Now().UnixMicro())
	store, err := s.weirStore(redisstore.WithClock(func() weir.Instant { return weir.Instant(now.Load()) }))
	if err != nil {
		return err
	}
	p, err := limiterPeer(store, handful, func(Quota) weir.Spec {
		return weir.SlidingCounter{Limit: 1000, Window: window, Slices: 60}
	})
	if err != nil {
		return err
	}
	defer p.Close()
	for range 61 {
		if err := fillPeer(p, names, 1); err != nil {
			return err
		}
		now.Add(time.Minute.Microseconds())
	}
	return nil
}

func (s *server) fillRedisRate(names *names) error {
	client, err := s.goRedis()
	if err != nil {
		return err
	}
	defer client.Close()
	return fillPeer(shared(redisRate(redis_rate.NewLimiter(client), handful), nil), names, 1)
}

// fillSets is the usual sliding log: members made unique by a UUID, scored by their time.
func (s *server) fillSets(names *names) error {
	return s.fillEach(names, func(pipe redis.Pipeliner, key string, now int64) {
		members := make([]redis.Z, 100)
		for i := range members {
			members[i] = redis.Z{Score: float64(now + int64(i)*1000), Member: uuid()}
		}
		pipe.ZAdd(context.Background(), key, members...)
	})
}

// fillHashes is the usual counter of slices: a field a minute.
func (s *server) fillHashes(names *names) error {
	return s.fillEach(names, func(pipe redis.Pipeliner, key string, now int64) {
		fields := make([]any, 0, 120)
		for i := range int64(60) {
			fields = append(fields, strconv.FormatInt(now/time.Minute.Microseconds()+i, 10), 1)
		}
		pipe.HSet(context.Background(), key, fields...)
	})
}

func (s *server) fillEach(names *names, add func(redis.Pipeliner, string, int64)) error {
	client, err := s.goRedis()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	for i := range names.n {
		pipe := client.Pipeline()
		key := "limit:" + names.at(i)
		add(pipe, key, time.Now().UnixMicro())
		pipe.PExpire(ctx, key, window)
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

func uuid() string {
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
