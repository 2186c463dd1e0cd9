package gateway

import (
	"bytes"
	"cmp"
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

	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/requestid"
	"github.com/weirproject/weir/internal/rpcstatus"
	"github.com/weirproject/weir/internal/wording"
)

// statusClientGone counts requests of clients that disconnected; no response is sent.
const statusClientGone = 499

// errTooMany is the reason for not forwarding a granted request.
var errTooMany = errors.New("maximum of concurrent requests to the upstream reached")

// tooMany reports whether an error is a limit's of the requests in progress: the upstream did not get the request.
func tooMany(err error) bool {
	return errors.Is(err, errTooMany) || errors.Is(err, adaptive.ErrRefused)
}

// errTotal is the reason for ending a request at its timeout.total.
var errTotal = errors.New("the request took longer than timeout.total of its service")

// fail responds in place of the upstream.
func (g *gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := diagnose(w, r, err)
	if not := (*notConnected)(nil); !errors.As(err, &not) && !tooMany(err) {
		httplimit.Unfinished(w) // the service may have done the work
	}
	g.report.failed(ServiceOf(r), r.Method, status, err)
	if status == statusClientGone {
		w.WriteHeader(status)
		return
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	answer(w, r, status, text)
}

// diagnose maps an error to a status. For an error while both bodies were in transfer, the
// transport does not say which side failed; the upload records whether it was the client.
func diagnose(w http.ResponseWriter, r *http.Request, err error) (status int, text wording.Text) {
	var tooLarge *http.MaxBytesError
	var network net.Error
	switch {
	case context.Cause(r.Context()) == errTotal:
		return http.StatusGatewayTimeout, wording.Late
	case errors.Is(err, context.Canceled) || errors.Is(r.Context().Err(), context.Canceled):
		return statusClientGone, nil
	case tooMany(err):
		return http.StatusServiceUnavailable, wording.Busy
	case errors.As(err, &tooLarge), errors.As(uploadError(w), &tooLarge):
		return http.StatusRequestEntityTooLarge, wording.TooLarge
	case uploadError(w) != nil:
		return http.StatusBadRequest, wording.Unread
	case errors.As(err, &network) && network.Timeout():
		return http.StatusGatewayTimeout, wording.Late
	}
	return http.StatusBadGateway, wording.Broken
}

// answer writes a response of the gateway itself, as application/problem+json, a page, or a status of gRPC.
func answer(w http.ResponseWriter, r *http.Request, status int, say wording.Text) {
	text, language := say(r.Header["Accept-Language"])
	id, h := requestid.For(r.Header), w.Header()
	h.Set(requestid.Field, id)
	h.Set("Content-Language", language)
	h.Set("Cache-Control", "no-store")
	if rpcstatus.Is(r) {
		h.Add("Vary", "Accept-Language")
		call := rpcstatus.Answer{Status: status, Message: text}
		call.Write(w, r)
		return
	}
	var body []byte
	if wording.Negotiate(h, r.Header) {
		page := wording.Page{Status: status, Message: text, Language: language, RequestID: id}
		body = page.HTML(r.Header["Accept-Language"])
	} else {
		var contentType string
		contentType, body = httplimit.Problem(r, &httplimit.Refusal{Status: status, Message: text, Language: language,
			RequestID: id})
		h.Set("Content-Type", contentType)
	}
	w.WriteHeader(status)
	w.Write(body)
}

// An upload is a request body that records the result of reading, and that can be detached from its
// reader: the transport may still read after the response, and net/http panics on a read after the
// handler has returned.
type upload struct {
	io.ReadCloser
	atEnd    func()     // called at EOF; may be nil
	received func()     // called when reading has ended; may be nil
	reading  sync.Mutex // held during a Read
	stopped  bool       // guarded by reading

	mu    sync.Mutex
	begun bool
	err   error
	ended time.Time // when err occurred
}

var errStopped = errors.New("proxy: upload stopped, because the response has ended")

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
		u.err, u.ended = err, time.Now()
		if u.received != nil {
			u.received()
		}
	}
}

func (u *upload) state() (begun bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.begun, u.err
}

// sent reports whether the client has sent the whole body, and when it ended. A nil upload is no body.
func (u *upload) sent() (whole bool, at time.Time) {
	if u == nil {
		return true, time.Time{}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err == io.EOF, u.ended
}

func (u *upload) stop() {
	u.reading.Lock()
	defer u.reading.Unlock()
	u.stopped = true
}

// uploadError is why a body could not be read to its end; nil if it could.
func uploadError(w http.ResponseWriter) error {
	if r, ok := w.(*response); ok && r.body != nil {
		if _, err := r.body.state(); err != io.EOF {
			return err
		}
	}
	return nil
}

const (
	// maxUnread is the limit of unread input, the same as net/http's.
	maxUnread = 256 << 10
	// maxLinger is how long a client may go on sending after the response.
	maxLinger = time.Second
)

// endUpload detaches the body from the transport, and discards the rest of a body that the upstream
// did not read: closing a connection with unread input resets it, which may lose the response. The
// response is flushed first. WriteHeader has announced the close of the connection: if the deadline
// cuts the body, its remainder would otherwise be read as the next request. The body is not read while
// the client waits for a 100, because reading would send it.
func (w *response) endUpload(r *http.Request) {
	begun, err := w.body.state()
	var tooLarge *http.MaxBytesError
	if err != nil && !errors.As(err, &tooLarge) {
		return
	}
	control := http.NewResponseController(w.ResponseWriter)
	_ = control.Flush()
	_ = control.SetReadDeadline(time.Now().Add(maxLinger))
	w.body.stop()
	if _, err := w.body.state(); err == nil && (begun || r.Header["Expect"] == nil) {
		_, _ = io.CopyN(io.Discard, w.body.ReadCloser, maxUnread)
	}
}

// A response preserves the fields of the limit. ReverseProxy adds the upstream's to them, but with
// an informational response (100, 103) it would send and then clear all.
type response struct {
	http.ResponseWriter
	body    *upload // nil without a body
	major   int     // of the HTTP version
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

// WriteHeader keeps the fields for the final response.
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
	if h := w.Header(); !informational && h["Content-Type"] == nil {
		h["Content-Type"] = nil // net/http would guess one, and a browser run an upload of a stranger as a page
	}
	if status == http.StatusContinue {
		return // the server sends it when the transport reads the body, which may be before: the client would get two
	}
	w.ResponseWriter.WriteHeader(status)
}

// early reports whether the response precedes the end of the body, which matters in HTTP/1 alone.
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

// Unwrap supports http.ResponseController, through which ReverseProxy flushes and hijacks.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A report passes each failure to the observer, and a limited number to the log, so that an
// unavailable upstream does not fill a disk.
type report struct {
	log      *slog.Logger
	observe  func(status int, err error)
	upstream string

	mu    sync.Mutex
	kinds map[kind]*quiet
}

// A kind of lines: a service that fails must not hide the failures of others.
type kind struct {
	service string
	status  int // 0: a response that broke off
}

// quiet counts the suppressed lines of one kind.
type quiet struct {
	until time.Time
	lines int
}

func (r *report) failed(service, method string, status int, err error) {
	if r.observe != nil {
		r.observe(status, err)
	}
	if status < http.StatusInternalServerError {
		return // the client's fault
	}
	text := "upstream failed: the gateway responds in its place"
	if tooMany(err) {
		text = "too many requests are in progress: the gateway refuses some"
	}
	if unlogged, ok := r.due(kind{service, status}); ok {
		r.log.Warn(text, "upstream", cmp.Or(service, r.upstream), "method", method, "status", status, "error", err,
			"unlogged", unlogged)
	}
}

// due reports whether a line may be logged, and the number of lines of its kind suppressed before
// it.
func (r *report) due(k kind) (unlogged int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds == nil {
		r.kinds = make(map[kind]*quiet)
	}
	q := r.kinds[k]
	if q == nil {
		q = &quiet{}
		r.kinds[k] = q
	}
	now := time.Now()
	if now.Before(q.until) {
		q.lines++
		return 0, false
	}
	unlogged, q.lines = q.lines, 0
	q.until = now.Add(time.Second)
	return unlogged, true
}

// logger receives the messages of ReverseProxy.
func (r *report) logger() *log.Logger { return log.New(proxyLog{r}, "", 0) }

type proxyLog struct{ report *report }

// Write implements io.Writer. That a response broke off is reported elsewhere, with its service.
func (l proxyLog) Write(line []byte) (int, error) {
	if !bytes.Contains(line, []byte("error during body copy")) {
		l.report.warn(brokenOff, "", string(line))
	}
	return len(line), nil
}

const brokenOff = "response of the upstream broke off"

// warn logs a failure after the head of a response.
func (r *report) warn(text, service string, err any) {
	if unlogged, ok := r.due(kind{service, 0}); ok {
		r.log.Warn(text, "upstream", cmp.Or(service, r.upstream), "error", err, "unlogged", unlogged)
	}
}

// A responseBody records why reading ended.
type responseBody struct {
	io.ReadCloser
	err error
}

func (b *responseBody) Read(p []byte) (n int, err error) {
	if n, err = b.ReadCloser.Read(p); err != nil {
		b.err = err
	}
	return n, err
}
