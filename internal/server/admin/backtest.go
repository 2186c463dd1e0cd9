package admin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"time"

	"github.com/weirproject/weir/internal/server/web"
	"github.com/weirproject/weir/rules"
)

// Bounds of a backtest on a server that decides requests meanwhile.
const (
	maxLog       = 64 << 20 // bytes, as they are sent
	maxUpload    = 5 * time.Minute
	maxRehearsal = time.Minute
)

// A Rehearsal is a backtest of rules on a log.
type Rehearsal struct {
	File *rules.File
	Set  *rules.Set // of File
	// Against are the rules in force if File has others; nil: none.
	Against *rules.Set
	Log     *os.File // deleted already; it may be compressed
	Name    string   // of the log

	Format, Sweep, Propose, Good string // as the flags of weir backtest; "" is none
}

// backtest replays an uploaded log. There is one at a time, so its memory and disk are bounded for the server. It ends
// when the client leaves.
func (h *handler) backtest(_ context.Context, c *call) (any, error) {
	if h.Backtest == nil {
		return nil, web.Refuse(http.StatusForbidden, "this server has no backtests; run weir backtest")
	}
	return stream(func(w http.ResponseWriter, r *http.Request) error {
		if !h.rehearsing.TryLock() {
			return web.Refuse(http.StatusTooManyRequests,
				"a backtest is running on this server, which runs one at a time; try again when it has ended")
		}
		defer h.rehearsing.Unlock()
		// The server's timeouts are for small bodies. A writer without deadlines is one of a test.
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(maxUpload))
		_ = control.SetWriteDeadline(time.Now().Add(maxUpload + 2*maxRehearsal))
		in, err := h.rehearsal(c, r)
		if err != nil {
			return err
		}
		defer in.Log.Close()
		ctx, cancel := context.WithTimeout(r.Context(), maxRehearsal)
		defer cancel()
		report, err := h.Backtest(ctx, in)
		switch {
		case r.Context().Err() != nil:
			return web.Refuse(invalid, "the client left") // which reads nothing
		case errors.Is(err, context.DeadlineExceeded):
			return web.Refuse(invalid, "the log takes over %v, which is the maximum on a server; "+
				"send a part of it, or run weir backtest elsewhere", maxRehearsal)
		case err != nil:
			return web.Refuse(invalid, "%s", err)
		}
		c.write(w, report)
		return nil
	}), nil
}

// rehearsal reads the form: rules, unless those in force are meant, and then the log.
func (h *handler) rehearsal(c *call, r *http.Request) (*Rehearsal, error) {
	if r.ContentLength > maxLog+rules.MaxFile+1<<16 {
		return nil, web.Refuse(http.StatusRequestEntityTooLarge, "the body has over %d bytes", maxLog+rules.MaxFile)
	}
	form, err := r.MultipartReader()
	if err != nil {
		return nil, web.Refuse(http.StatusUnsupportedMediaType, "Content-Type is %.80q; allowed: multipart/form-data",
			r.Header.Get("Content-Type"))
	}
	in := &Rehearsal{File: h.inForce().file, Format: c.query.Get("log_format"), Sweep: c.query.Get("sweep"),
		Propose: c.query.Get("propose"), Good: c.query.Get("good")}
	if in.Set, err = h.Compile(in.File); err != nil {
		return nil, err
	}
	for {
		part, err := form.NextRawPart()
		switch {
		case err == io.EOF:
			return nil, web.Refuse(http.StatusBadRequest, "the form has no part log")
		case err != nil:
			return nil, unread(err)
		case part.FormName() == "rules":
			err = h.candidate(in, part)
		case part.FormName() == "log":
			in.Name = fmt.Sprintf("%.100s", cmp.Or(part.FileName(), "log"))
			if in.Log, err = keep(part); err == nil {
				// Only at the end of the body the server notices when the client leaves.
				_, err = io.Copy(io.Discard, io.LimitReader(r.Body, 1<<16))
			}
			return in, err
		default:
			err = web.Refuse(http.StatusBadRequest,
				"the form has a part %.80q; allowed: rules, and log as the last one", part.FormName())
		}
		if err != nil {
			return nil, err
		}
	}
}

func unread(err error) error {
	return web.Refuse(http.StatusBadRequest, "the body could not be read to its end: %v", err)
}

// candidate reads the rules to try. They are compared with those in force.
func (h *handler) candidate(in *Rehearsal, part *multipart.Part) error {
	text, err := io.ReadAll(io.LimitReader(part, rules.MaxFile+1))
	if err != nil {
		return unread(err)
	}
	if len(text) > rules.MaxFile {
		return web.Refuse(http.StatusRequestEntityTooLarge, "rules has over %d bytes", rules.MaxFile)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	file, err := rules.Parse("rules", text)
	if err != nil {
		return err
	}
	set, err := h.Compile(file)
	if err != nil {
		return err
	}
	in.File, in.Set, in.Against = file, set, in.Set
	return nil
}

// keep copies a log to a file that is deleted already: it is read more than once, and would be much memory.
func keep(part io.Reader) (_ *os.File, err error) {
	file, err := os.CreateTemp("", "weir-backtest-")
	if err != nil {
		return nil, web.Refuse(http.StatusForbidden,
			"the server cannot keep the log in a temporary file (TMPDIR): %v", err)
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	if err := os.Remove(file.Name()); err != nil {
		return nil, fmt.Errorf("backtest: %w", err)
	}
	n, err := io.Copy(file, io.LimitReader(part, maxLog+1))
	switch {
	case err != nil:
		return nil, unread(err)
	case n > maxLog:
		return nil, web.Refuse(http.StatusRequestEntityTooLarge,
			"log has over %d bytes; compress it, or send a part of it", maxLog)
	}
	return file, nil
}
