package gateway

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/requestid"
)

const (
	// accessEvery is how often lines are written.
	accessEvery = 100 * time.Millisecond
	// maxAccess bounds the lines that wait, in bytes: about 40,000 of them.
	maxAccess = 8 << 20
)

// An AccessLog writes a line for each request of a gateway. Requests do not wait for it: lines beyond its bound are
// lost, and counted.
type AccessLog struct {
	AccessConfig
	passed  atomic.Uint64 // requests that were answered below 400
	written atomic.Int64
	lost    atomic.Int64

	mu    sync.Mutex
	lines []byte
	count int64 // of lines

	stop  chan struct{}
	ended sync.WaitGroup
}

// An AccessConfig describes an AccessLog.
type AccessConfig struct {
	Out      interface{ Write([]byte) (int, error) } // writes whole lines, or, with an error, nothing
	Combined bool                                    // as Apache and nginx do; otherwise JSON
	Every    uint64                                  // of the requests answered below 400, one in so many has a line
	Clients  *clientaddr.Extractor
	Log      *slog.Logger
}

// NewAccessLog makes an AccessLog, and starts to write. Close ends it.
func NewAccessLog(c AccessConfig) *AccessLog {
	l := &AccessLog{AccessConfig: c, stop: make(chan struct{})}
	l.ended.Go(l.run)
	return l
}

// Written and Lost count lines.
func (l *AccessLog) Written() int64 { return l.written.Load() }

// Lost are the lines that did not fit, or could not be written.
func (l *AccessLog) Lost() int64 { return l.lost.Load() }

// Close writes the last lines.
func (l *AccessLog) Close() {
	close(l.stop)
	l.ended.Wait()
}

func (l *AccessLog) run() {
	tick := time.NewTicker(accessEvery)
	defer tick.Stop()
	var spare []byte
	for open := true; open; {
		select {
		case <-tick.C:
		case <-l.stop:
			open = false
		}
		l.mu.Lock()
		lines, count := l.lines, l.count
		l.lines, l.count = spare[:0], 0
		l.mu.Unlock()
		if spare = lines; count > 0 {
			l.write(lines, count)
		}
	}
}

func (l *AccessLog) write(lines []byte, count int64) {
	if _, err := l.Out.Write(lines); err != nil {
		if l.lost.Add(count) == count { // the first
			l.Log.Error("access log: lines are lost", "error", err)
		}
		return
	}
	l.written.Add(count)
}

// Wrap returns a handler that logs its requests.
func (l *AccessLog) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &access{ResponseWriter: w, began: time.Now()}
		defer l.add(a, r) // also when a response breaks off by a panic
		next.ServeHTTP(a, r.WithContext(context.WithValue(r.Context(), accessKey{}, a)))
	})
}

// Decided notes the decision on a request, as an observer of the limit.
func (l *AccessLog) Decided(r *http.Request, e httplimit.Event) {
	a, _ := r.Context().Value(accessKey{}).(*access)
	if a == nil || e.Outcome >= httplimit.Unreleased {
		return
	}
	a.id, a.service = r.Header.Get(requestid.Field), ServiceOf(r)
	if p := routedOf(r.Context()); p != nil {
		a.client = p.request.Client
	}
	a.outcome = [...]string{"passed", "refused", "skipped", "denied", "failed"}[e.Outcome]
	if e.Rule != nil {
		a.rule = e.Rule.Name()
	}
}

type accessKey struct{}

// An access has the fields of a line about a request and its response.
type access struct {
	http.ResponseWriter
	began                      time.Time
	status                     int
	bytes                      int64
	client                     netip.Addr // not valid: not decided, or not known
	id, service, outcome, rule string
}

// Unwrap is for http.ResponseController.
func (a *access) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Hijack implements http.Hijacker: the connection of a WebSocket is open then.
func (a *access) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	connection, buffered, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.status = http.StatusSwitchingProtocols
	}
	return connection, buffered, err
}

// WriteHeader implements http.ResponseWriter.
func (a *access) WriteHeader(status int) {
	if a.status < 200 && a.status != http.StatusSwitchingProtocols {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *access) Write(text []byte) (n int, err error) {
	if a.status < 200 {
		a.status = http.StatusOK
	}
	n, err = a.ResponseWriter.Write(text)
	a.bytes += int64(n)
	return n, err
}

// An accessLine is a line of JSON, with names that weir backtest knows.
type accessLine struct {
	At        time.Time `json:"start_time"`
	Client    string    `json:"client,omitempty"`
	Method    string    `json:"method"`
	Host      string    `json:"host"`
	Target    string    `json:"request_uri"` // path and query, as they came
	Proto     string    `json:"proto"`
	Status    int       `json:"status"`
	Bytes     int64     `json:"bytes"`
	Seconds   float64   `json:"request_time"` // seconds
	RequestID string    `json:"request_id"`
	Outcome   string    `json:"outcome,omitempty"`
	Rule      string    `json:"rule,omitempty"`
	Service   string    `json:"service,omitempty"`
	Referer   string    `json:"referer,omitempty"`
	UserAgent string    `json:"user_agent,omitempty"`
}

// add queues the line of a request.
func (l *AccessLog) add(a *access, r *http.Request) {
	status := cmp.Or(a.status, http.StatusOK)
	if status < 400 && l.passed.Add(1)%l.Every != 0 {
		return
	}
	line := accessLine{At: a.began.UTC(), Method: r.Method, Host: r.Host, Target: r.RequestURI, Proto: r.Proto,
		Status: status, Bytes: a.bytes, Seconds: time.Since(a.began).Seconds(), Outcome: a.outcome, Rule: a.rule,
		RequestID: cmp.Or(a.id, a.Header().Get(requestid.Field)), Service: a.service, Referer: r.Referer(),
		UserAgent: r.UserAgent()}
	client := a.client
	if !client.IsValid() {
		client, _ = l.Clients.Of(r)
	}
	if client.IsValid() {
		line.Client = client.String()
	}
	text := line.combined()
	if !l.Combined {
		text, _ = json.Marshal(&line) // nothing of these types can fail
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines)+len(text) >= maxAccess {
		l.lost.Add(1)
		return
	}
	l.lines = append(append(l.lines, text...), '\n')
	l.count++
}

// combined is the line in the combined format. The id of the request is not in it: programs that read the format refuse
// more fields, or take them for X-Forwarded-For, as nginx's main has it.
func (a *accessLine) combined() []byte {
	b := fmt.Appendf(nil, "%s - - [%s] \"", cmp.Or(a.Client, "-"), a.At.Format("02/Jan/2006:15:04:05 -0700"))
	b = appendSafe(b, a.Method+" "+a.Target+" "+a.Proto)
	b = strconv.AppendInt(append(b, `" `...), int64(a.Status), 10)
	b = strconv.AppendInt(append(b, ' '), a.Bytes, 10)
	for _, text := range []string{a.Referer, a.UserAgent} {
		b = append(appendSafe(append(b, ` "`...), cmp.Or(text, "-")), '"')
	}
	return b
}

// appendSafe appends a text with quotes, backslashes and bytes that are not printable as \xXX, as nginx has it.
func appendSafe(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			b = fmt.Appendf(b, `\x%02X`, c)
		} else {
			b = append(b, c)
		}
	}
	return b
}
