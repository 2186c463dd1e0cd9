package main

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

const shortestName = "raw, rueidis: EVALSHA of the shortest bucket"

// shortest is the least that a bucket by Redis' own clock can be: TIME, GET, SET. It
// keeps when the bucket will be full, and answers with one bit.
const shortest = `local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local full = redis.call('GET', KEYS[1])
full = full and full + 0 or now
if full < now then full = now end
full = full + ARGV[1]
if full - now > ARGV[2] + 0 then return 0 end
redis.call('SET', KEYS[1], full, 'PX', math.ceil((full - now) / 1000))
return 1`

const returnOne = `return 1`

// rawRows are what no limiter through the same client can beat.
func rawRows(s *server) []row {
	return []row{
		rawRow("raw, rueidis: GET (absent key)", true, s.rueidisGet),
		rawRow("raw, rueidis: EVALSHA of return 1", true, s.rueidisScript(returnOne)),
		rawRow(shortestName, false, s.rueidisScript(shortest)),
		rawRow("raw, go-redis: GET (absent key)", true, s.goRedisGet),
		rawRow("raw, go-redis: EVALSHA of return 1", true, s.goRedisScript(returnOne)),
		rawRow("raw, go-redis: EVALSHA of the shortest bucket", false, s.goRedisScript(shortest)),
	}
}

func rawRow(name string, floor bool, open func(Quota) (Peer, error)) row {
	return row{name: name, floor: floor, refuses: !floor, open: open}
}

// bucketArgs are the interval and the span of the shortest bucket, in microseconds.
func bucketArgs(q Quota) (interval, span string) {
	every := q.Every.Microseconds()
	return strconv.FormatInt(every, 10), strconv.FormatInt(every*q.Burst, 10)
}

func (s *server) rueidisGet(Quota) (Peer, error) {
	client, err := rueidisClient(s)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	ask := func(key string) (bool, error) {
		err := client.Do(ctx, client.B().Get().Key(key).Build()).Error()
		return true, absent(err, rueidis.IsRedisNil(err))
	}
	return shared(ask, client.Close), nil
}

func absent(err error, is bool) error {
	if is {
		return nil
	}
	return err
}

func (s *server) rueidisScript(text string) func(Quota) (Peer, error) {
	return func(q Quota) (Peer, error) {
		client, err := rueidisClient(s)
		if err != nil {
			return nil, err
		}
		ctx := context.Background()
		sha, err := client.Do(ctx, client.B().ScriptLoad().Script(text).Build()).ToString()
		if err != nil {
			client.Close()
			return nil, err
		}
		interval, span := bucketArgs(q)
		ask := func(key string) (bool, error) {
			command := client.B().Evalsha().Sha1(sha).Numkeys(1).Key("r:"+key).Arg(interval, span).Build()
			answer, err := client.Do(ctx, command).AsInt64()
			return answer == 1, err
		}
		return shared(ask, client.Close), nil
	}
}

func (s *server) goRedisGet(Quota) (Peer, error) {
	client, err := s.goRedis()
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	ask := func(key string) (bool, error) {
		err := client.Get(ctx, key).Err()
		return true, absent(err, err == redis.Nil)
	}
	return shared(ask, func() { client.Close() }), nil
}

func (s *server) goRedis() (*redis.Client, error) {
	options, err := s.options()
	if err != nil {
		return nil, err
	}
	return redis.NewClient(options), nil
}

func (s *server) goRedisScript(text string) func(Quota) (Peer, error) {
	return func(q Quota) (Peer, error) {
		client, err := s.goRedis()
		if err != nil {
			return nil, err
		}
		ctx := context.Background()
		sha, err := client.ScriptLoad(ctx, text).Result()
		if err != nil {
			client.Close()
			return nil, err
		}
		interval, span := bucketArgs(q)
		ask := func(key string) (bool, error) {
			answer, err := client.EvalSha(ctx, sha, []string{"g:" + key}, interval, span).Int64()
			return answer == 1, err
		}
		return shared(ask, func() { client.Close() }), nil
	}
}
