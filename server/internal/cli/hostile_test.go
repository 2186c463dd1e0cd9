//go:build unix

package cli_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

// hostileAnswers are what a hostile server says, and what it goes on to say.
var hostileAnswers = map[string]struct{ reply, after string }{
	"an array of 2^31 - 1":    {"*2147483647\r\n", strings.Repeat(":1\r\n", 1<<18)},
	"a text of 2^63 - 1":      {"$9223372036854775807\r\n", strings.Repeat("x", 1<<20)},
	"a text of 2^29":          {"$536870912\r\n", strings.Repeat("x", 1<<20)},
	"a reply to no request":   {"+OK\r\n+OK\r\n+OK\r\n", ""},
	"an unasked subscription": {">3\r\n+subscribe\r\n+x\r\n:1\r\n+OK\r\n", ""},
	"silence":                 {"", ""},
}

// hostileStage is a part of the life of a server whose Redis is replaced by a hostile one.
type hostileStage struct {
	honest  map[string]string // what is still answered as by Redis
	command string            // the first that is not
}

// A hostileCase is what becomes of a process while Redis is replaced and is back by turns.
type hostileCase struct {
	args   []string
	stages []hostileStage
	// starts checks a process that has not reached Redis yet, holds one that had.
	starts, holds func(*process)
	recovers      func(*process, *redistest.Server)
}

// run runs the case with each answer. The process lives, its memory is bounded, and SIGTERM ends it.
func (c hostileCase) run(t *testing.T) {
	for name, answer := range hostileAnswers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			redis.Kill()
			replaceRedis := func(stage hostileStage) *redistest.Hostile {
				return redistest.StartHostile(t, redis.Addr(), stage.honest, func(w io.Writer) (err error) {
					for text := answer.reply; err == nil && text != ""; text = answer.after {
						_, err = io.WriteString(w, text)
					}
					return err
				})
			}
			hostile := replaceRedis(c.stages[0])
			args := []string{"--config", write(t, t.TempDir(), "rules.yaml", byPolicy), "--set", "server.shutdown_timeout=5s"}
			for _, arg := range c.args {
				args = append(args, strings.ReplaceAll(arg, "URL", redis.URL()))
			}
			p := gatewayBy(t, args...)
			c.starts(p)
			for _, stage := range c.stages {
				hostile.Stop()
				redis.Restart()
				c.recovers(p, redis)
				redis.Kill()
				hostile = replaceRedis(stage)
				redistest.Await(t, "a hostile answer to "+stage.command, func() bool {
					status(t, p.at("gateway")+"/deny")
					return hostile.Answered(stage.command)
				})
				c.holds(p)
			}
			p.end()
			p.checkPeak()
		})
	}
}

// checkPeak checks how much memory the process, which has ended, had at most.
func (p *process) checkPeak() {
	p.t.Helper()
	const most = 256 << 20
	peak := int64(p.command.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
	if runtime.GOOS == "linux" {
		peak <<= 10
	}
	if peak > most && len(raceOf) == 0 {
		p.t.Errorf("the process had %d MB of memory; want at most %d", peak>>20, most>>20)
	}
}

// readiness waits until /readyz answers with the code and says the text.
func (p *process) readiness(code int, text string) {
	p.t.Helper()
	redistest.Await(p.t, "readiness: "+text, func() bool {
		got, _, body := get(p.t, p.at("http")+"/readyz")
		return got == code && strings.Contains(body, text)
	})
}

// TestHostileRedis: the store is at the address of a server that answers what no Redis answers.
// on_store_error decides within server.store.timeout, /readyz says so, and Redis decides again when it is
// back.
func TestHostileRedis(t *testing.T) {
	t.Parallel()
	hostileCase{
		args:   []string{"--store", "URL", "--set", "server.store.timeout=" + hostileBudget.String()},
		stages: []hostileStage{{nil, "HELLO"}, {redistest.Greeting, "EVALSHA"}},
		starts: (*process).decidesWithoutRedis,
		holds:  (*process).decidesWithoutRedis,
		recovers: func(p *process, redis *redistest.Server) {
			redistest.Await(p.t, "decisions of Redis", func() bool {
				return status(p.t, p.at("gateway")+"/deny") == 200 && len(redis.Do("KEYS", "weir:deny:*").([]any)) == 1
			})
			p.readiness(http.StatusOK, `{"status":"ready"}`)
		},
	}.run(t)
}

const hostileBudget = 500 * time.Millisecond

// decidesWithoutRedis checks what the rules' policies decide, and in what time.
func (p *process) decidesWithoutRedis() {
	p.t.Helper()
	for range 3 {
		for path, allowed := range map[string][]int{"/deny": {503}, "/allow": {200}, "/local": {200, 429}} {
			for got := range p.answersWithin(hostileBudget, path) {
				if !slices.Contains(allowed, got) {
					p.t.Errorf("%s: %d, want one of %v", path, got, allowed)
				}
			}
		}
	}
	p.readiness(http.StatusOK, "the last store call failed")
}

// TestHostileRedisOfRules: the rules are at the address of a server that answers what no Redis
// answers. The server is not ready before it has read them, the last rules stay in force, and
// changes are read when Redis is back.
func TestHostileRedisOfRules(t *testing.T) {
	t.Parallel()
	subscribes := maps.Clone(redistest.Greeting)
	subscribes["SUBSCRIBE"] = ">3\r\n$9\r\nsubscribe\r\n$17\r\nrate_limit_config\r\n:1\r\n"
	hostileCase{
		args:   []string{"--rules", "URL", "--set", "server.rules.wait=100ms"},
		stages: []hostileStage{{nil, "HELLO"}, {redistest.Greeting, "SUBSCRIBE"}, {subscribes, "SCAN"}},
		starts: func(p *process) {
			p.readiness(http.StatusServiceUnavailable, "not all rules are loaded yet")
		},
		holds: func(p *process) {
			p.readiness(http.StatusOK, "redis: ")
			if got := policy(p.t, p); !strings.Contains(got, `"a";q=`) {
				p.t.Errorf("the rule of Redis is not in force any more, but %s", got)
			}
		},
		recovers: func(p *process, redis *redistest.Server) {
			limit := 1_000_000 + int(time.Now().UnixNano()%1_000_000_000)
			redisCLI(p.t, redis, hash(limit))
			redistest.Await(p.t, "the rule of Redis", func() bool {
				redis.Do("PUBLISH", "rate_limit_config", "RELOAD_ALL") // it may have been read while it was empty
				return strings.Contains(policy(p.t, p), fmt.Sprintf(`"a";q=%d;w=3600`, limit))
			})
			p.readiness(http.StatusOK, `{"status":"ready"}`)
		},
	}.run(t)
}
