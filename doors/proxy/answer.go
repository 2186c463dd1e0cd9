package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weirproject/weir/httplimit"
)

// statusClientGone is for those who count answers: nobody is there to read it.
const statusClientGone = 499

// errTooMany is why a request is not forwarded that the limit let pass.
var errTooMany = errors.New("as many requests are at the upstream as may be")

// fail answers for an upstream that did not.
func (g *gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := diagnose(w, r, err)
	g.report.tell(r.Method, status, err)
	if status == statusClientGone {
		w.WriteHeader(status)
		return
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	answer(w, r, status, text)
}

// diagnose says whose fault an error is. Of one that came while both sides were talking
// the transport tells only that it came; the body remembers if it was the client's.
func diagnose(w http.ResponseWriter, r *http.Request, err error) (status int, text string) {
	var tooLarge *http.MaxBytesError
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(r.Context().Err(), context.Canceled):
		return statusClientGone, ""
	case errors.Is(err, errTooMany):
		return http.StatusServiceUnavailable, "As many requests are forwarded as may be."
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge, "The body is too large."
	case uploadFailed(w):
		return http.StatusBadRequest, "The body could not be read."
	case errors.As(err, &network) && network.Timeout():
		return http.StatusGatewayTimeout, "The upstream did not answer in time."
	}
	return http.StatusBadGateway, "The upstream could not be reached, or gave no answer that can be read."
}

// answer is an answer of the gateway's own, as application/problem+json.
func answer(w http.ResponseWriter, r *http.Request, status int, text string) {
	contentType, body := httplimit.Problem(r, &httplimit.Refusal{Status: status, Message: text})
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(body)
}

// An upload is a body that remembers how reading it went, and that can be taken from its
// reader: the transport may still read it when the answer is there, and net/http panics if
// it does so when the handler has returned.
type upload struct {
	io.ReadCloser
	atEnd   func()     // nil: nothing is to be done when all was read
	reading sync.Mutex // held while somebody reads
	stopped bool       // by reading's holder

	mu    sync.Mutex
	begun bool
	err   error
}

var errStopped = errors.New("proxy: the answer is over, and with it the upload")

func (u *upload) Read(p []byte) (int, error) {
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.stopped {
		return 0, errStopped
	}
	u.note(nil)
	n, err := u.ReadCloser.Read(p)
	if err == io.EOF && u.atEnd != nil {
		u.atEnd()
	}
	u.note(err)
	return n, err
}

func (u *upload) note(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.begun = true
	if err != nil {
		u.err = err
	}
}

func (u *upload) state() (begun bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.begun, u.err
}

func (u *upload) stop() {
	u.reading.Lock()
	defer u.reading.Unlock()
	u.stopped = true
}

func uploadFailed(w http.ResponseWriter) bool {
	r, ok := w.(*response)
	if !ok || r.body == nil {
		return false
	}
	_, err := r.body.state()
	return err != nil && err != io.EOF
}

const (
	// mostPast is what net/http reads past too, before it gives an answer up as lost.
	mostPast = 256 << 10
	// longestPast is how long a client may still send when it has been answered.
	longestPast = time.Second
)

// endUpload takes the body from the transport, and reads past what is left of one that the
// upstream did not want: a connection that is closed with something unread is reset, and
// the answer may be lost with it. The answer goes first. The connection is closed in any
// case (WriteHeader said so): where a deadline broke the body off, what follows of it would
// otherwise be read as the next request. Where the client waits for a 100 it is not to get one.
func (w *response) endUpload(r *http.Request) {
	begun, err := w.body.state()
	if err != nil {
		return
	}
	control := http.NewResponseController(w.ResponseWriter)
	_ = control.Flush()
	_ = control.SetReadDeadline(time.Now().Add(longestPast))
	w.body.stop()
	if _, err := w.body.state(); err == nil && (begun || r.Header["Expect"] == nil) {
		_, _ = io.CopyN(io.Discard, w.body.ReadCloser, mostPast)
	}
}

// A response keeps the fields that the limit wrote. ReverseProxy adds the upstream's to
// them; but with an informational answer (100, 103) it would send them, and clears all.
type response struct {
	http.ResponseWriter
	body    *upload // of HTTP/1 and 2; nil: there is none
	major   int     // of HTTP
	kept    []field
	cleared bool
	room    [6]field
}

type field struct {
	name   string
	values []string
}

func newResponse(w http.ResponseWriter, major int) *response {
	r := &response{ResponseWriter: w, major: major}
	r.kept = r.room[:0]
	for name, values := range w.Header() {
		r.kept = append(r.kept, field{name, values})
	}
	return r
}

// WriteHeader keeps the fields for the answer that is not informational.
func (w *response) WriteHeader(status int) {
	informational := status < 200 && status != http.StatusSwitchingProtocols
	switch {
	case informational && !w.cleared:
		w.takeOut()
	case !informational && w.cleared:
		w.putBack()
	}
	w.cleared = informational
	if !informational && w.early() {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(status)
}

// early reports whether the answer comes before the end of the body. HTTP/2 does not mind.
func (w *response) early() bool {
	if w.body == nil || w.major != 1 {
		return false
	}
	_, err := w.body.state()
	return err != io.EOF
}

func (w *response) takeOut() {
	h := w.Header()
	for _, f := range w.kept {
		if h[f.name] = h[f.name][len(f.values):]; len(h[f.name]) == 0 {
			delete(h, f.name)
		}
	}
}

func (w *response) putBack() {
	h := w.Header()
	for _, f := range w.kept {
		h[f.name] = append(slices.Clip(f.values), h[f.name]...)
	}
}

// Unwrap is for http.ResponseController, by which ReverseProxy flushes and hijacks.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A report tells of failures: each to the observer, and few enough to the log that an
// upstream that is gone does not fill a disk.
type report struct {
	log      *slog.Logger
	observe  func(status int, err error)
	upstream string

	mu    sync.Mutex
	kinds map[int]*quiet // by status, of which there are few
}

// quiet is what was not logged of one kind.
type quiet struct {
	until time.Time
	lines int
}

func (r *report) tell(method string, status int, err error) {
	if r.observe != nil {
		r.observe(status, err)
	}
	if status == statusClientGone {
		return
	}
	if unlogged, ok := r.due(status); ok {
		r.log.Warn("the gateway answers for its upstream",
			"upstream", r.upstream, "method", method, "status", status, "error", err, "unlogged", unlogged)
	}
}

// due reports whether a line may be logged, and how many of its kind were not before.
func (r *report) due(kind int) (unlogged int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds == nil {
		r.kinds = make(map[int]*quiet)
	}
	q := r.kinds[kind]
	if q == nil {
		q = &quiet{}
		r.kinds[kind] = q
	}
	now := time.Now()
	if now.Before(q.until) {
		q.lines++
		return 0, false
	}
	unlogged, q.lines, q.until = q.lines, 0, now.Add(time.Second)
	return unlogged, true
}

// logger is for what ReverseProxy itself says: that an answer broke off on its way.
func (r *report) logger() *log.Logger { return log.New(brokenOff{r}, "", 0) }

type brokenOff struct{ report *report }

func (b brokenOff) Write(line []byte) (int, error) {
	if unlogged, ok := b.report.due(0); ok {
		b.report.log.Warn("an answer of the upstream broke off", "upstream", b.report.upstream, "error", string(line), "unlogged", unlogged)
	}
	return len(line), nil
}
