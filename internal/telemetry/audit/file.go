package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// maxFiles is how many files there are, with the one that is written.
const maxFiles = 5

// fileNames are the names of the files, from the newest.
func fileNames(name string) []string {
	names := []string{name}
	for i := 1; i < maxFiles; i++ {
		names = append(names, fmt.Sprintf("%s.%d", name, i))
	}
	return names
}

// NewFileSink writes records as lines of JSON to a file, which only its owner can read. A file of most bytes is
// renamed to NAME.1, that to NAME.2, and so on; there are at most five.
func NewFileSink(name string, most int64) (Sink, error) {
	s := &fileSink{name: name, most: most}
	if err := s.open(); err != nil {
		return nil, err
	}
	return s, nil
}

type fileSink struct {
	name string
	most int64
	file *os.File // nil: it could not be opened again
	size int64
	text bytes.Buffer
}

func (*fileSink) Name() string { return "file" }
func (*fileSink) Batch() int   { return 1000 }

func (s *fileSink) Close() {
	if s.file != nil {
		s.file.Close()
	}
}

// open opens the file to append to it. A torn last line, of a process that was killed, gets its end.
func (s *fileSink) open() error {
	file, err := os.OpenFile(s.name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", s.name)
	}
	last := []byte{'\n'}
	if err == nil && info.Size() > 0 {
		if _, err = file.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
			_, err = file.Write([]byte{'\n'})
		}
	}
	if err == nil {
		info, err = file.Stat()
	}
	if err != nil {
		file.Close()
		return err
	}
	s.file, s.size = file, info.Size()
	return nil
}

func (s *fileSink) Write(_ context.Context, list []Record) (int, error) {
	s.text.Reset()
	encoder := json.NewEncoder(&s.text)
	encoder.SetEscapeHTML(false)
	for i := range list {
		if err := encoder.Encode(&list[i]); err != nil {
			return 0, err
		}
	}
	if err := s.reopen(); err != nil {
		return 0, err
	}
	if err := s.makeRoom(int64(s.text.Len())); err != nil {
		return 0, err
	}
	n, err := s.file.Write(s.text.Bytes())
	if err != nil {
		if n > 0 { // or the records would be there twice
			s.file.Truncate(s.size)
		}
		return 0, err
	}
	s.size += int64(n)
	return len(list), nil
}

// reopen opens the file anew if it was moved, as logrotate does, or deleted: records would go where nobody reads them.
func (s *fileSink) reopen() error {
	if s.file == nil {
		return s.open()
	}
	is, err := s.file.Stat()
	if err != nil {
		return err
	}
	if at, err := os.Stat(s.name); err == nil && os.SameFile(is, at) {
		return nil
	}
	s.file.Close()
	s.file = nil
	return s.open()
}

// makeRoom begins another file if the text does not fit into this one.
func (s *fileSink) makeRoom(text int64) error {
	if s.size == 0 || s.size+text <= s.most {
		return nil
	}
	s.file.Close()
	s.file = nil
	names := fileNames(s.name)
	for i := len(names) - 1; i > 0; i-- {
		if err := os.Rename(names[i-1], names[i]); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return s.open()
}
