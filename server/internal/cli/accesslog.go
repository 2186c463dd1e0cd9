package cli

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/rotated"
	"github.com/weirproject/weir/server/internal/gateway"
)

// accessFlags are those of the access log.
type accessFlags struct {
	file, format string
	every        uint64
	log          *gateway.AccessLog // nil: off
	close        func()
}

// maxAccessFile is when the file is renamed, in bytes.
const maxAccessFile = 100 << 20

func (f *accessFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "access-log", "",
		"`FILE` with a line for each request of the gateway; -: standard output (default: none)")
	flags.StringVar(&f.format, "access-log-format", "json", "format of these lines, as a `WORD`: json or combined")
	flags.Uint64Var(&f.every, "access-log-every", 1,
		"of the requests answered below 400, log one in this `NUMBER`; all others are logged")
}

func (f *accessFlags) check() error {
	switch {
	case f.format != "json" && f.format != "combined":
		return usagef("--access-log-format is %.80q; allowed: json or combined", f.format)
	case f.every < 1:
		return usagef("--access-log-every is %d; allowed: 1 or more", f.every)
	}
	return nil
}

// openAccessLog begins the access log, if there is to be one.
func (v *server) openAccessLog() error {
	f := &v.flags.access
	if f.file == "" {
		return nil
	}
	var out io.Writer = v.system.Out
	f.close = func() {}
	if f.file != "-" {
		file, err := rotated.Open(f.file, maxAccessFile)
		if err != nil {
			return fmt.Errorf("--access-log: %w", err)
		}
		out, f.close = file, file.Close
	}
	f.log = gateway.NewAccessLog(gateway.AccessConfig{Out: out, Combined: f.format == "combined", Every: f.every,
		Clients: v.engine.Clients, Log: v.log})
	v.engine.Metrics.Count("weir_access_log_written_total", "Lines of the access log.", f.log.Written)
	v.engine.Metrics.Count("weir_access_log_lost_total", "Lines of the access log that were lost.", f.log.Lost)
	return nil
}

// wrap returns a handler whose requests are logged.
func (f *accessFlags) wrap(handler http.Handler) http.Handler {
	if f.log == nil {
		return handler
	}
	return f.log.Wrap(handler)
}

// observer notes decisions for the log, and calls next.
func (f *accessFlags) observer(next func(*http.Request, httplimit.Event)) func(*http.Request, httplimit.Event) {
	if f.log == nil {
		return next
	}
	return func(r *http.Request, e httplimit.Event) {
		f.log.Decided(r, e)
		next(r, e)
	}
}

// end writes the last lines.
func (f *accessFlags) end() {
	if f.log != nil {
		f.log.Close()
		f.close()
	}
}
