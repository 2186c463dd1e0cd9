package accesslog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Options are how to read a log. The zero value detects the format.
type Options struct {
	// Format is a name of Formats, or a template as nginx (with $) or Apache (with %) has it in its configuration; ""
	// or "auto" detects it from the first lines of each file.
	Format string
	// Map says where the values are in lines of JSON: client=.ip,path=.uri|.url,time=.ts; see MapFields.
	Map string
	// Window is how late a line may be to be sorted; 0 is a minute. Later lines are kept, with the time of the request
	// before them.
	Window time.Duration
	// Zone is the zone of times without one; nil is UTC.
	Zone *time.Location
	// Progress, if non-nil, is called by Open and Next with the bytes read from all files, compressed ones as they are,
	// and their total; 0 if it is not known, as a pipe's.
	Progress func(read, total int64)
}

const (
	defaultWindow = time.Minute
	// maxWaiting is how many requests of all files wait to be sorted, whatever the window; each holds its line.
	maxWaiting = 1 << 17
	// detectLines is how many lines of a file tell its format.
	detectLines = 100
	// examples is how many lines that could not be read are kept, each with at most maxExample bytes.
	examples   = 5
	maxExample = 300
)

// A File has the findings in a file.
type File struct {
	Name   string
	Format string // "" of an empty file
	// Resolution is the resolution of the time: of nginx's combined format, one second.
	Resolution time.Duration
	// TimeIs says which moment of a request Record.Time is.
	TimeIs TimeIs
	// Lines are the lines read so far; Requests are their requests, Unread the unreadable lines. The others are
	// blank, or headers of the file.
	Lines, Requests, Unread int64
	// Late requests came later than Options.Window, and have the time of the request before them.
	Late     int64
	Examples []Unread // the first of Unread
}

// TimeIs is a moment of a request.
type TimeIs string

// The moments that formats have. Start is also an end with a known duration. Either is the moment of combined and
// common, which nginx writes with the end, and Apache with the start.
const (
	Start  TimeIs = "start"
	End    TimeIs = "end"
	Either TimeIs = "start or end"
	// Order is that of requests without a time, which are a millisecond apart in the order of the lines.
	Order TimeIs = "order of lines"
)

// An Unread line is one that could not be read.
type Unread struct {
	Line int64  // from 1
	Text string // the beginning; a terminal may act on it if it is not quoted
	Why  string
}

// A Log is the requests of several files in the order of their time. It is for one goroutine.
type Log struct {
	files    []*file
	merge    heap // of files
	clock    int64
	began    bool
	err      error
	read     int64
	total    int64
	endless  bool // a file is a pipe
	progress func(read, total int64)
}

// Open opens files and finds out their formats; "-" is stdin. A file that has no line of a format is an error.
func Open(names []string, stdin io.Reader, o Options) (*Log, error) {
	if len(names) == 0 {
		return nil, errors.New("no log is given")
	}
	if first := slices.Index(names, "-"); first >= 0 && slices.Contains(names[first+1:], "-") {
		return nil, errors.New("the standard input (-) is given twice")
	}
	l := &Log{progress: o.Progress}
	formats, err := candidates(o)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		f := &file{log: l, index: i, options: o, File: File{Name: name}}
		l.files = append(l.files, f)
		err := f.open(stdin, formats)
		if err != nil {
			l.Close()
			return nil, err
		}
	}
	for i, f := range l.files {
		f.order.window = cmp.Or(o.Window, defaultWindow).Microseconds()
		f.order.most = max(1, maxWaiting/len(names))
		if f.began {
			l.merge.push(entry{f.earliest - f.order.window, int64(i), i})
		}
	}
	return l, nil
}

// Next reads the next request into r, and reuses the memory of its Fields. Texts of r stay valid. The error is
// io.EOF at the end; another one names the file, and the position in it. Time does not go back.
func (l *Log) Next(r *Record) error {
	for len(l.merge) > 0 {
		f := l.files[l.merge.pop().slot]
		if !f.merging {
			f.merging = true
			l.advance(f)
			continue
		}
		f.order.take(r)
		l.advance(f)
		f.Requests++
		if r.Time < l.clock && l.began {
			r.Time = l.clock
			f.Late++
		}
		l.clock, l.began = r.Time, true
		return nil
	}
	return cmp.Or(l.err, io.EOF)
}

// advance reads lines of a file until its next request is known. The requests before an error are not lost.
func (l *Log) advance(f *file) {
	for !f.order.ready(f.ended) && !f.ended {
		if err := f.readLine(); err != nil {
			f.ended = true
			if err != io.EOF {
				l.err = cmp.Or(l.err, err)
			}
		}
	}
	if f.order.ready(f.ended) {
		first, _ := f.order.first()
		l.merge.push(entry{first.time, int64(f.index), f.index})
		return
	}
	f.close()
}

// Files are the findings in the files so far, in the order of their names.
func (l *Log) Files() []File {
	var list []File
	for _, f := range l.files {
		list = append(list, f.File)
	}
	return list
}

// Close closes the files.
func (l *Log) Close() error {
	for _, f := range l.files {
		f.close()
	}
	return nil
}

// A file has its first lines read by open, and the others from the moment on that the merge reaches its time.
type file struct {
	File
	log     *Log
	index   int
	options Options

	raw   *os.File  // nil: stdin
	input io.Reader // raw or stdin
	lines *lines
	early []earlyLine // lines that open read

	format   format
	draft    draft
	order    order
	began    bool  // it has a request
	earliest int64 // of the first lines
	merging  bool
	ended    bool
}

// An earlyLine is what lines.next returned.
type earlyLine struct {
	number int64
	text   string
	err    error
}

func (f *file) open(stdin io.Reader, formats []format) error {
	f.input = stdin
	regular := false
	if f.Name != "-" {
		var err error
		if f.raw, err = os.Open(f.Name); err != nil {
			return err
		}
		f.input = f.raw
		info, err := f.raw.Stat()
		if err != nil {
			return err
		}
		if info.IsDir() {
			return fmt.Errorf("%s is a directory", f.Name)
		}
		regular = info.Mode().IsRegular()
		f.log.total += info.Size()
	}
	f.log.endless = f.log.endless || !regular
	var err error
	if f.lines, err = openLines(f.Name, counter{f}); err != nil {
		return err
	}
	return f.detect(formats)
}

// A counter counts bytes read from a file.
type counter struct{ *file }

func (c counter) Read(p []byte) (int, error) {
	n, err := c.input.Read(p)
	l := c.log
	l.read += int64(n)
	switch {
	case l.progress == nil:
	case l.endless:
		l.progress(l.read, 0)
	default:
		l.progress(l.read, l.total)
	}
	return n, err
}

// detect reads the first lines, and finds the format that reads the most of them.
func (f *file) detect(formats []format) error {
	var sample []string
	for len(sample) < detectLines {
		if len(f.early) == 10*detectLines {
			return fmt.Errorf("%s: %d of the first %d lines are blank or too long", f.Name, len(f.early)-len(sample),
				len(f.early))
		}
		line, err := f.lines.next()
		if err == io.EOF {
			break
		}
		if err != nil && err != errTooLong {
			return err
		}
		f.early = append(f.early, earlyLine{f.lines.number, string(line), err})
		if len(line) > 0 && err == nil {
			sample = append(sample, string(line))
		}
	}
	if len(sample) == 0 {
		f.Lines = int64(len(f.early))
		return nil
	}
	f.draft.clock.zone = f.options.Zone
	found, reads, err := detect(formats, sample, &f.draft)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	f.format, f.began = found, true
	f.Format, f.TimeIs = found.name, found.timeIs
	f.earliest, f.Resolution = reads.earliest, reads.resolution
	return nil
}

// readLine reads a line; a request in it is added to the order.
func (f *file) readLine() error {
	number, text, err := f.nextLine()
	if err != nil && err != errTooLong {
		return err
	}
	f.Lines++
	if text == "" {
		return nil
	}
	if err == nil {
		slot := f.order.slot()
		r := f.order.record(slot)
		if err = f.format.request(text, &f.draft, r); err == nil {
			r.File, r.Line = f.index, number
			f.order.add(slot)
			return nil
		}
		f.order.discard(slot)
	}
	f.unread(number, text, err)
	return nil
}

func (f *file) nextLine() (number int64, text string, err error) {
	if len(f.early) > 0 {
		line := f.early[0]
		f.early = f.early[1:]
		return line.number, line.text, line.err
	}
	line, err := f.lines.next()
	return f.lines.number, string(line), err
}

func (f *file) unread(number int64, text string, err error) {
	f.Unread++
	if len(f.Examples) < examples {
		text = text[:min(len(text), maxExample)]
		f.Examples = append(f.Examples, Unread{number, strings.ToValidUTF8(text, "\ufffd"), err.Error()})
	}
}

func (f *file) close() {
	if f.raw != nil {
		f.raw.Close()
	}
}
