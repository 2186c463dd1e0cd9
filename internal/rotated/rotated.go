// Package rotated is a file of lines that is renamed when it is full, and opened anew when it was moved.
package rotated

import (
	"fmt"
	"os"
)

// maxFiles is how many files there are, with the one that is written.
const maxFiles = 5

// Names are the names of the files, from the newest.
func Names(name string) []string {
	names := []string{name}
	for i := 1; i < maxFiles; i++ {
		names = append(names, fmt.Sprintf("%s.%d", name, i))
	}
	return names
}

// A File gets lines. Only its owner can read it. It is for one goroutine.
type File struct {
	name string
	most int64
	file *os.File // nil: it could not be opened again
	size int64
}

// Open opens a file to append to it. A file of most bytes is renamed to NAME.1, that to NAME.2, and so on; there are at
// most five.
func Open(name string, most int64) (*File, error) {
	f := &File{name: name, most: most}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() {
	if f.file != nil {
		f.file.Close()
	}
}

// open opens the file to append to it. A torn last line, of a process that was killed, gets its end.
func (f *File) open() error {
	file, err := os.OpenFile(f.name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", f.name)
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
	f.file, f.size = file, info.Size()
	return nil
}

// Write appends whole lines, or returns an error without a change.
func (f *File) Write(text []byte) (int, error) {
	if err := f.reopen(); err != nil {
		return 0, err
	}
	if err := f.makeRoom(int64(len(text))); err != nil {
		return 0, err
	}
	n, err := f.file.Write(text)
	if err != nil {
		if n > 0 { // or the lines would be there twice
			f.file.Truncate(f.size)
		}
		return 0, err
	}
	f.size += int64(n)
	return n, nil
}

// reopen opens the file anew if it was moved, as logrotate does, or deleted: lines would go into a file that is not
// read.
func (f *File) reopen() error {
	if f.file == nil {
		return f.open()
	}
	is, err := f.file.Stat()
	if err != nil {
		return err
	}
	if at, err := os.Stat(f.name); err == nil && os.SameFile(is, at) {
		return nil
	}
	f.file.Close()
	f.file = nil
	return f.open()
}

// makeRoom begins another file if the text does not fit into this one.
func (f *File) makeRoom(text int64) error {
	if f.size == 0 || f.size+text <= f.most {
		return nil
	}
	f.file.Close()
	f.file = nil
	names := Names(f.name)
	for i := len(names) - 1; i > 0; i-- {
		if err := os.Rename(names[i-1], names[i]); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return f.open()
}
