// Package program is what commands of the binary weir have in common: exit codes, and what they show on a terminal.
package program

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// The exit codes, as docs/reference/weir.md states them.
const (
	Clean  = 0
	Failed = 1 // a failure, or a file with mistakes
	Usage  = 2 // a flag, variable or setting has a wrong value
	Found  = 3 // a check, a comparison or a bound has findings
)

// An Exit ends the program with a code. Err is nil if everything was printed already.
type Exit struct {
	Code int
	Err  error
}

// Error is the printed sentence.
func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprint("exit ", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Exit) Unwrap() error { return e.Err }

// Usagef returns an error in the use of the command line.
func Usagef(format string, values ...any) error {
	return &Exit{Usage, fmt.Errorf(format, values...)}
}

// PrintJSON prints a document for people and programs.
func PrintJSON(out io.Writer, document any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(document)
}

// Count is "1 rule" or "2 rules".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// IsTerminal reports whether a stream is a terminal, or another character device.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// barWidth is the width of a progress bar.
const barWidth = 40

// Bar draws progress on a terminal, once a log takes longer than a second; nil elsewhere.
func Bar(out io.Writer, pass, passes int) func(read, total int64) {
	if !IsTerminal(out) {
		return nil
	}
	next, drawn := time.Now().Add(time.Second), false
	return func(read, total int64) {
		if done := total > 0 && read >= total; done && drawn {
			fmt.Fprint(out, "\r\x1b[K")
			drawn = false
			return
		}
		if time.Now().Before(next) {
			return
		}
		next, drawn = time.Now().Add(200*time.Millisecond), true
		text := fmt.Sprintf("%d MB", read>>20)
		if total > 0 {
			full := int(barWidth * min(read, total) / total)
			text = fmt.Sprintf("[%s%s] %d %%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full),
				100*min(read, total)/total)
		}
		if passes > 1 {
			text += fmt.Sprintf(" of pass %d of %d", pass, passes)
		}
		fmt.Fprint(out, "\r\x1b[K"+text)
	}
}
