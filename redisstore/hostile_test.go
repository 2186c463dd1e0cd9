package redisstore_test

import (
	"bufio"
	"errors"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
)

// hostile is a server that greets as Redis does and answers EVALSHA as it is told to.
type hostile struct {
	net.Listener
	mu     sync.Mutex
	answer func(net.Conn) // to EVALSHA
	conns  []net.Conn
}

func startHostile(t *testing.T) *hostile {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hostile{Listener: l}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h.mu.Lock()
			h.conns = append(h.conns, conn)
			h.mu.Unlock()
			go h.serve(conn)
		}
	}()
	t.Cleanup(func() { h.Close() })
	return h
}

func (h *hostile) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, conn := range h.conns {
		conn.Close()
	}
	return h.Listener.Close()
}

func (h *hostile) answers(answer func(net.Conn)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

func (h *hostile) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		words, err := readWords(r)
		if err != nil {
			return
		}
		switch strings.ToUpper(words[0]) {
		case "HELLO":
			text(conn, "%3\r\n+version\r\n+7.0.0\r\n+mode\r\n+standalone\r\n+role\r\n+master\r\n")
		case "EVALSHA":
			h.mu.Lock()
			answer := h.answer
			h.mu.Unlock()
			answer(conn)
		case "INFO":
			text(conn, "$0\r\n\r\n")
		default:
			text(conn, "+OK\r\n")
		}
	}
}

func readWords(r *bufio.Reader) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	words := make([]string, n)
	for i := range words {
		if line, err = r.ReadString('\n'); err != nil {
			return nil, err
		}
		size, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		word := make([]byte, size+2)
		for read := 0; read < len(word); {
			n, err := r.Read(word[read:])
			if err != nil {
				return nil, err
			}
			read += n
		}
		words[i] = string(word[:size])
	}
	return words, nil
}

func text(conn net.Conn, text string) { _, _ = conn.Write([]byte(text)) }

// good is a grant of a bucket, at an instant of 2026.
const good = "*2\r\n:3580000000000001\r\n:1790000000000000\r\n"

// hostileReplies are what a server may say instead of an answer.
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
			server.answers(func(conn net.Conn) { text(conn, reply) })
			before := heap()
			asks(t, l, 1)
			asks(t, l, 20)
			if now := heap(); now > before+256<<20 { // 21 replies below the ceilings take 4 MB each
				t.Errorf("the program has %d MB more", (now-before)>>20)
			}
			server.answers(func(conn net.Conn) { text(conn, good) })
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
	case <-time.After(10 * time.Second):
		t.Error("Close waits for the server")
	}
}

// TestDrippingServer: a reply that comes byte by byte, and does not end, holds nobody for longer.
func TestDrippingServer(t *testing.T) {
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
	server.answers(func(conn net.Conn) {
		text(conn, "*100000\r\n")
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
				text(conn, ":1\r\n")
			}
		}
	})
	asks(t, l, 20)
	close(stop)
	server.answers(func(conn net.Conn) { text(conn, good) })
	redistest.Await(t, "an answer of the server, which is well again", func() bool {
		answer, err := l.Allow(t.Context(), "key")
		return err == nil && answer.Allowed
	})
}
