package redisconn

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/deadline"
	"github.com/weirproject/weir/internal/redistest"
)

func TestRunReplies(t *testing.T) {
	c := open(t, redistest.Start(t).URL(), Config{})
	run := func(text string, keys, args []string) ([]Value, error) {
		return c.Run(t.Context(), ScriptOf(text), keys, args, []Value{{Int: 7}})
	}
	got, err := run("return {1, -2, 'three', KEYS[1], ARGV[2], 4503599627370496}", []string{"k\x00"}, []string{"", "\r\n"})
	want := "[{7  false} {1  false} {-2  false} {0 three true} {0 k\x00 true} {0 \r\n true} {4503599627370496  false}]"
	if fmt.Sprint(got) != want || err != nil {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if got, err := run("return {}", nil, nil); len(got) != 1 || err != nil {
		t.Errorf("an empty array appends %v, %v", got, err)
	}
	for _, text := range []string{"return {1, false, 3}", "return 5", "return 'x'", "return false", "return {{1}}"} {
		var answer *ServerError
		if _, err := run(text, nil, nil); errors.As(err, &answer) || !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("%s: %v, want weir.ErrUnavailable", text, err)
		}
	}
}

func TestRunServerErrors(t *testing.T) {
	c := open(t, redistest.Start(t).URL(), Config{})
	for text, want := range map[string]string{
		"return redis.error_reply('WEIR foreign 1')":                         "WEIR foreign 1",
		"redis.call('LPUSH', KEYS[1], 1); return redis.call('GET', KEYS[1])": "WRONGTYPE Operation",
		"return {":          "Error compiling script", // what SCRIPT LOAD said
		"return NOSCRIPT()": "Script attempted to access nonexistent global variable 'NOSCRIPT'",
	} {
		_, err := c.Run(t.Context(), ScriptOf(text), []string{"k"}, nil, nil)
		var answer *ServerError
		if !errors.As(err, &answer) || !strings.Contains(answer.Text, want) || errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("%s: %v, want a ServerError of %q", text, err, want)
		}
	}
}

// TestScriptFlush takes the script from under 128 goroutines, and again. No call may be
// lost or charged twice, and only a few may load it.
func TestScriptFlush(t *testing.T) {
	server := redistest.Start(t)
	c := open(t, server.URL(), Config{})
	mustRun(t, c, "k")
	if evals := calledTimes(server, "eval"); evals != 0 {
		t.Errorf("%d EVALs: what was EVALed first may be evicted", evals)
	}
	var wg sync.WaitGroup
	const goroutines, calls, flushes = 128, 200, 10
	var ended [goroutines]atomic.Int64 // calls of each goroutine
	for i := range goroutines {
		wg.Go(func() {
			for range calls {
				if _, err := run(t, c, "k"); err != nil {
					t.Error(err)
				}
				ended[i].Add(1)
			}
		})
	}
	for range flushes {
		server.Do("SCRIPT", "FLUSH", "SYNC")
		for i := range ended { // so that each meets the flush
			before := ended[i].Load()
			redistest.Await(t, "each goroutine to end a call", func() bool {
				return ended[i].Load() > before || before == calls
			})
		}
	}
	wg.Wait()
	if got := server.Do("GET", "k"); got != strconv.Itoa(1+goroutines*calls) {
		t.Errorf("charged %v, want %d", got, 1+goroutines*calls)
	}
	// A flush between a load and the calls that waited for it makes one more. Before 7.0 flushes count with them.
	if loads := calledTimes(server, "script|load") + calledTimes(server, "script"); loads > 5*flushes {
		t.Errorf("%d SCRIPT LOADs after %d flushes", loads, flushes)
	}
}

// calledTimes is how often a server executed a command.
func calledTimes(server *redistest.Server, command string) int {
	stats := server.Info("commandstats")["cmdstat_"+command]
	calls, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
	n, _ := strconv.Atoi(calls)
	return n
}

// TestLoadOutlivesItsCaller has a caller who gave up use his keys for something else while
// the script is loaded, for others too. The race detector sees who reads them then.
func TestLoadOutlivesItsCaller(t *testing.T) {
	server := redistest.Start(t)
	c := open(t, server.URL(), Config{})
	given, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 100 {
		keys := []string{"key"}
		script := ScriptOf("return {" + strconv.Itoa(i) + "}")
		c.load(given, script, keys)
		keys[0] = "another"
		redistest.Await(t, "the script to be loaded", func() bool {
			return server.Do("SCRIPT", "EXISTS", script.SHA).([]any)[0] == int64(1)
		})
	}
}

// TestFrozenServer stops the server under a crowd. Each call ends by its timeout, also when far more of them were
// given up than a connection has room for, none is charged twice, and calls work again once the server does.
func TestFrozenServer(t *testing.T) {
	const timeout = 20 * time.Millisecond
	server := redistest.Start(t)
	c := open(t, server.URL(), Config{Timeout: timeout})
	crowd(50, 20*time.Millisecond, func() { run(t, c, "warm") }) // now rueidis pipelines
	server.Stop()
	bound := deadline.Shared{Timeout: timeout}
	var sent, answered, late atomic.Int64
	crowd(300, time.Second, func() {
		start := time.Now()
		_, err := c.Run(bound.Context(start), charge(), []string{"k"}, []string{"1"}, nil)
		sent.Add(1)
		if err == nil {
			answered.Add(1)
		} else if !errors.Is(err, weir.ErrUnavailable) {
			t.Error(err)
		}
		if time.Since(start) > 2*time.Second { // the machine may be busy; rueidis alone takes three
			late.Add(1)
		}
	})
	if late.Load() > 0 || answered.Load() > 0 {
		t.Errorf("of %d calls %d were late and %d answered", sent.Load(), late.Load(), answered.Load())
	}
	server.Cont()
	redistest.Await(t, "calls to work again", func() bool {
		_, err := run(t, c, "other")
		return err == nil
	})
	charged, _ := server.Do("GET", "k").(string)
	if n, _ := strconv.Atoi(charged); int64(n) > sent.Load() {
		t.Errorf("%d calls were charged %d times", sent.Load(), n)
	}
}

// crowd has n goroutines call again and again for a while, with a pause after each call.
func crowd(n int, length time.Duration, call func()) {
	var wg sync.WaitGroup
	end := time.Now().Add(length)
	for range n {
		wg.Go(func() {
			for time.Now().Before(end) {
				call()
				time.Sleep(time.Millisecond)
			}
		})
	}
	wg.Wait()
}

// TestFrozenServerIsChargedOnce follows one call, alone on its connection and among
// others, through a halt of the server.
func TestFrozenServerIsChargedOnce(t *testing.T) {
	server := redistest.Start(t)
	c := open(t, server.URL(), Config{})
	mustRun(t, c, "warm")
	for _, others := range []int{0, 20} {
		key := "k" + strconv.Itoa(others)
		server.Stop()
		var wg sync.WaitGroup
		for i := range others {
			wg.Go(func() { timedRun(t, c, "other"+strconv.Itoa(i)) })
		}
		err := timedRun(t, c, key)
		wg.Wait()
		// Among others the connection may have ended by the deadline of one of them, which is not this call's.
		if !errors.Is(err, weir.ErrUnavailable) || others == 0 && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the call ended with %v", err)
		}
		if !strings.Contains(err.Error(), "unknown whether") {
			t.Errorf("the error does not say that the call may have been executed: %v", err)
		}
		server.Cont()
		redistest.Await(t, "calls to work again", func() bool { return timedRun(t, c, "warm") == nil })
		if n := server.Do("GET", key); n != nil && n != "1" {
			t.Errorf("one call was charged %v times", n)
		}
	}
}

// timedRun runs charge with the usual 50ms.
func timedRun(t *testing.T, c Conn, key string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Run(ctx, charge(), []string{key}, []string{"1"}, nil)
	return err
}

// TestTimeoutOfALoneCallIsNotCutShort: rueidis ends such a call after two seconds by default.
func TestTimeoutOfALoneCallIsNotCutShort(t *testing.T) {
	server := redistest.Start(t)
	c := open(t, server.URL(), Config{Timeout: time.Minute})
	mustRun(t, c, "k")
	server.Stop()
	time.AfterFunc(2500*time.Millisecond, server.Cont)
	if got := mustRun(t, c, "k"); got != 2 {
		t.Errorf("the second call was charged as number %d", got)
	}
}

func TestServerGone(t *testing.T) {
	server := redistest.Start(t)
	c := open(t, server.URL(), Config{})
	mustRun(t, c, "k")
	server.Kill()
	redistest.Await(t, "an error that says that nothing was executed", func() bool {
		err := timedRun(t, c, "k")
		if err == nil || !errors.Is(err, weir.ErrUnavailable) {
			t.Fatalf("a killed server gives %v", err)
		}
		return strings.Contains(err.Error(), "not executed")
	})
	server.Restart()
	redistest.Await(t, "calls to work again", func() bool { return timedRun(t, c, "k") == nil })
}

func TestCallersContext(t *testing.T) {
	c := open(t, redistest.Start(t).URL(), Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Run(ctx, charge(), []string{"k"}, []string{"1"}, nil)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, weir.ErrUnavailable) {
		t.Errorf("a cancelled context gives %v", err)
	}
	if got := mustRun(t, c, "k"); got != 1 {
		t.Errorf("a call whose context was over was charged")
	}
}

func TestClosed(t *testing.T) {
	server := redistest.Start(t)
	before := runtime.NumGoroutine()
	c := open(t, server.URL(), Config{})
	crowd(20, 10*time.Millisecond, func() { mustRun(t, c, "k") })
	c.Close()
	if _, err := run(t, c, "k"); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	redistest.Await(t, "the goroutines of the Conn to end", func() bool { return runtime.NumGoroutine() <= before })
	redistest.Await(t, "its connections to end", func() bool {
		return server.Info("clients")["connected_clients"] == "1" // the one that asks
	})
}

func TestDelete(t *testing.T) {
	server := redistest.Start(t)
	c := open(t, server.URL(), Config{})
	mustRun(t, c, "a")
	mustRun(t, c, "b")
	for _, keys := range [][]string{nil, {"a", "b", "none"}} {
		if err := c.Delete(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
	}
	if left := server.Do("DBSIZE"); left != int64(0) {
		t.Errorf("%d keys are left", left)
	}
}
