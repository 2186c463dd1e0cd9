package cli

import (
	"fmt"
	"io"
	"net/http"

	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/rotated"
	"github.com/weirproject/weir/server/internal/gateway"
)

// An accessLog is the log of the gateway's requests.
type accessLog struct {
	log   *gateway.AccessLog // nil: off
	close func()
}

// maxAccessFile is when the file is renamed, in bytes.
const maxAccessFile = 100 << 20

// openAccessLog begins the access log, if there is to be one.
func (v *server) openAccessLog() error {
	f, file := &v.access, v.engine.AccessLog
	if file == "" {
		return nil
	}
	var out io.Writer = v.system.Out
	f.close = func() {}
	if file != "-" {
		opened, err := rotated.Open(file, maxAccessFile)
		if err != nil {
			return fmt.Errorf("server.access_log: %w", err)
		}
		out, f.close = opened, opened.Close
	}
	f.log = gateway.NewAccessLog(gateway.AccessConfig{Out: out, Combined: v.engine.AccessLogFormat == "combined",
		Every:   uint64(v.engine.AccessLogEvery),
		Clients: v.engine.Clients, Log: v.log})
	v.engine.Metrics.Count("weir_access_log_written_total", "Lines of the access log.", f.log.Written)
	v.engine.Metrics.Count("weir_access_log_lost_total", "Lines of the access log that were lost.", f.log.Lost)
	return nil
}

// wrap returns a handler that logs its requests.
func (f *accessLog) wrap(handler http.Handler) http.Handler {
	if f.log == nil {
		return handler
	}
	return f.log.Wrap(handler)
}

// observer notes decisions for the log, and calls next.
func (f *accessLog) observer(next func(*http.Request, httplimit.Event)) func(*http.Request, httplimit.Event) {
	if f.log == nil {
		return next
	}
	return func(r *http.Request, e httplimit.Event) {
		f.log.Decided(r, e)
		next(r, e)
	}
}

// end writes the last lines.
func (f *accessLog) end() {
	if f.log != nil {
		f.log.Close()
		f.close()
	}
}
