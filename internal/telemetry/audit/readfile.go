package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/weirproject/weir/internal/rotated"
)

// maxLine bounds a line of a file, in bytes. Records are far shorter.
const maxLine = 64 << 10

// OpenFile reads a file that NewFileSink writes, with the older ones. Lines that are no records are skipped.
func OpenFile(name string) (Reader, error) {
	if _, err := os.Stat(name); err != nil {
		return nil, err
	}
	return &fileReader{name: name}, nil
}

type fileReader struct {
	name string
	file *os.File // the newest, read to its end; nil: not yet
	torn []byte   // the begin of a line that is being written
}

func (r *fileReader) Close() {
	if r.file != nil {
		r.file.Close()
	}
}

// Last reads all files, the oldest first.
func (r *fileReader) Last(_ context.Context, f *Filter, most int) (list []Record, err error) {
	keep := func(record *Record) {
		if f.Matches(record) {
			list = append(list, *record)
		}
		if len(list) >= 2*most { // not each time
			list = append(list[:0], list[len(list)-most:]...)
		}
	}
	names := rotated.Names(r.name)
	slices.Reverse(names)
	for _, name := range names {
		if err := r.open(name); errors.Is(err, os.ErrNotExist) && name != r.name {
			continue
		} else if err != nil {
			return nil, err
		}
		if err := r.rest(keep); err != nil {
			return nil, err
		}
	}
	return list[max(0, len(list)-most):], nil
}

// Next reads appended records, and goes on in the next file after a rotation.
func (r *fileReader) Next(_ context.Context, f *Filter) (list []Record, err error) {
	keep := func(record *Record) {
		if f.Matches(record) {
			list = append(list, *record)
		}
	}
	if err := r.rest(keep); err != nil {
		return list, err
	}
	now, err := os.Stat(r.name)
	if errors.Is(err, os.ErrNotExist) {
		return list, nil // a rotation is under way
	}
	if err != nil {
		return list, err
	}
	if before, err := r.file.Stat(); err == nil && os.SameFile(before, now) {
		return list, nil
	}
	if err := r.rest(keep); err != nil { // what was written before the rotation
		return list, err
	}
	if err := r.open(r.name); err != nil {
		return list, err
	}
	return list, r.rest(keep)
}

func (r *fileReader) open(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	r.Close()
	r.file, r.torn = file, nil
	return nil
}

// rest calls keep with each record up to the end of the file.
func (r *fileReader) rest(keep func(*Record)) error {
	in := bufio.NewReaderSize(r.file, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		if r.torn = append(r.torn, line...); len(r.torn) > maxLine {
			r.torn = r.torn[:1] // the line is no record, whatever follows
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return err
		}
		var record Record
		if json.Unmarshal(bytes.TrimSpace(r.torn), &record) == nil && !record.At.IsZero() {
			keep(&record)
		}
		r.torn = r.torn[:0]
	}
}
