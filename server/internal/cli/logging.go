package cli

import (
	"context"
	"io"
	"log"
	"log/slog"
	"strings"

	"github.com/weirproject/weir/internal/servermetrics"
)

// levels are the values of the setting log.level.
var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
	"error": slog.LevelError}

// newLog returns a logger with a level that can be changed.
func newLog(out io.Writer, format, word string, level *slog.LevelVar) *slog.Logger {
	level.Set(levels[word])
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

// A serverLog sets the level of the lines of http.Server. Most lines are caused by clients (a
// port scan, a bad handshake) and are logged as debug; a panic and a failed Accept, such as for
// lack of open files, are not.
type serverLog struct {
	log    *slog.Logger
	counts *servermetrics.Server // nil: of no server
}

func newServerLog(to *slog.Logger, counts *servermetrics.Server) *log.Logger {
	return log.New(serverLog{to, counts}, "", 0)
}

// takeLog sends lines of the standard logger to the log, as http.Server's are: net/http's client writes bytes of a
// service there, without a bound.
func takeLog(to *slog.Logger) {
	log.SetFlags(0)
	log.SetOutput(serverLog{log: to})
}

// Write implements io.Writer for one line.
func (l serverLog) Write(line []byte) (int, error) {
	text, level := strings.TrimSpace(string(line)), slog.LevelDebug
	switch {
	case strings.Contains(text, "panic serving"):
		level = slog.LevelError
	case strings.Contains(text, "Accept error"):
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, text)
	if l.counts != nil && isUnread(text) {
		l.counts.Unread()
	}
	return len(line), nil
}

// isUnread reports whether a line of http.Server is of a request that did not arrive, which it tells in no other way.
// A peer that connects and stays silent, as balancers do to see whether a port is open, sends no request.
func isUnread(line string) bool {
	return strings.HasPrefix(line, "http2: server connection error") ||
		strings.HasPrefix(line, "http: TLS handshake error") && !strings.HasSuffix(line, ": EOF")
}
