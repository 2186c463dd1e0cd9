package redisstore_test

import (
	"errors"
	"io"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
)

// startHostile starts a server that answers scripts wrongly, and at first with nothing.
func startHostile(t *testing.T) *redistest.Hostile {
	t.Helper()
	honest := maps.Clone(redistest.Greeting)
	honest["SCRIPT"], honest["PING"] = "+OK\r\n", "+PONG\r\n"
	return redistest.StartHostile(t, "127.0.0.1:0", honest, text(""))
}

// text returns a reply of that text.
func text(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

// good is a grant of a bucket, at an instant of 2026.
const good = "*2\r\n:3580000000000001\r\n:1790000000000000\r\n"

// hostileReplies are replies of a faulty or hostile server, by what is wrong with them.
var hostileReplies = map[string]string{
	"an array of 2^31 - 1":          "*2147483647\r\n",
	"a map of 2^31 - 1":             "%2147483647\r\n",
	"a set of 2^62":                 "~4611686018427387904\r\n",
	"a map of -1":                   "%-1\r\n",
	"an array of -2":                "*-2\r\n",
	"an array of no number":         "*1x\r\n",
	"an array of unknown length":    "*?\r\n:1\r\n.\r\n",
	"a text of 2^63 - 1":            "$9223372036854775807\r\n",
	"a text of 2^29":                "$536870912\r\n",
	"a text of -2":                  "$-2\r\n",
	"a text that is longer":         "$3\r\nabcdef\r\n",
	"a text of unknown length":      "$?\r\n;4611686018427387904\r\n",
	"a verbatim text of 2^62":       "=4611686018427387904\r\n",
	"an error text of 2^62":         "!4611686018427387904\r\n",
	"arrays of arrays":              strings.Repeat("*1\r\n", 3_000_000),
	"arrays of 100,000 of 100,000":  "*100000\r\n" + strings.Repeat("*100000\r\n", 100_000),
	"an array that does not end":    "*2\r\n:1\r\n",
	"a line without an end":         "+" + strings.Repeat("x", 1<<20),
	"an error without an end":       "-" + strings.Repeat("x", 1<<20),
	"a number without an end":       ":" + strings.Repeat("1", 1<<20),
	"a large number":                ":99999999999999999999\r\n",
	"half a reply":                  good[:9],
	"a reply twice":                 good + good,
	"replies without end":           strings.Repeat(good, 100_000),
	"no protocol":                   "HTTP/1.1 400 Bad Request\r\n\r\n",
	"a line that ends early":        "\r\n\r\n\n\n",
	"a null of another length":      "_xxxx\r\n",
	"no reply":                      "",
	"a subscription":                ">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n" + good,
	"a subscription, as lines":      ">3\r\n+subscribe\r\n+x\r\n:1\r\n" + good,
	"a push message within a reply": "*2\r\n>2\r\n+invalidate\r\n_\r\n:1\r\n",
	"an attribute of 2^31":          "|2147483647\r\n",
	"queued":                        "+QUEUED\r\n",
	"a text":                        "+OK\r\n",
	"nothing":                       "_\r\n",
	"an array of nothing":           "*0\r\n",
	"100,000 ones":                  "*100000\r\n" + strings.Repeat(":1\r\n", 100_000),
	"five texts":                    "*5\r\n" + strings.Repeat("+1\r\n", 5),
	"nested":                        "*2\r\n*1\r\n:1\r\n*1\r\n:1\r\n",
	"busy":                          "-BUSY Redis is busy running a script\r\n",
	"moved":                         "-MOVED 1 127.0.0.1:1\r\n",
	"moved to nowhere":              "-MOVED x\r\n",
	"ask":                           "-ASK\r\n",
	"an empty error":                "-\r\n",
}

// TestHostileServer: whatever a server answers, the call is an error within its time, nothing is
// granted, memory is bounded, and the next call is answered once the server is well.
func TestHostileServer(t *testing.T) {
	for name, reply := range hostileReplies {
		t.Run(name, func(t *testing.T) {
			server := startHostile(t)
			store, err := redisstore.Open(t.Context(), "redis://"+server.Addr().String(), redisstore.WithTimeout(500*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			defer closes(t, store)
			l, err := weir.New(store, "limit", weir.PerHour(10))
			if err != nil {
				t.Fatal(err)
			}
			server.Answer(text(reply))
			before := heap()
			asks(t, l, 1)
			asks(t, l, 20)
			if now := heap(); now > before+256<<20 { // 21 replies below the ceilings take 4 MB each
				t.Errorf("the program has %d MB more", (now-before)>>20)
			}
			server.Answer(text(good))
			redistest.Await(t, "an answer of the server, which is well again", func() bool {
				answer, err := l.Allow(t.Context(), "key")
				return err == nil && answer.Allowed
			})
		})
	}
}

// asks asks at the same time; a reply that came twice may be the answer of the first.
func asks(t *testing.T, l *weir.Limiter, callers int) {
	var wait sync.WaitGroup
	for range callers {
		wait.Go(func() {
			answer, err := l.Allow(t.Context(), "key")
			if !errors.Is(err, weir.ErrUnavailable) && !strings.HasPrefix(t.Name(), "TestHostileServer/a_reply_twice") &&
				!strings.HasPrefix(t.Name(), "TestHostileServer/replies") {
				t.Errorf("allowed %v, %v; want weir.ErrUnavailable", answer.Allowed, err)
			}
		})
	}
	wait.Wait()
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys
}

// closes closes the store, which must not wait for a server.
func closes(t *testing.T, store *redisstore.Store) {
	done := make(chan error)
	go func() { done <- store.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Close waits for the server")
	}
}

// TestDrippingServer: a reply that comes byte by byte, and does not end, delays no caller beyond the timeout.
func TestDrippingServer(t *testing.T) {
	t.Parallel()
	server := startHostile(t)
	store, err := redisstore.Open(t.Context(), "redis://"+server.Addr().String(), redisstore.WithTimeout(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer closes(t, store)
	l, err := weir.New(store, "limit", weir.PerHour(10))
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	server.Answer(func(w io.Writer) error {
		err := text("*100000\r\n")(w)
		for tick := time.NewTicker(5 * time.Millisecond); err == nil; {
			select {
			case <-stop:
				return nil
			case <-tick.C:
				err = text(":1\r\n")(w)
			}
		}
		return err
	})
	asks(t, l, 20)
	close(stop)
	server.Answer(text(good))
	redistest.Await(t, "an answer of the server, which is well again", func() bool {
		answer, err := l.Allow(t.Context(), "key")
		return err == nil && answer.Allowed
	})
}
