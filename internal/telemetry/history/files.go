package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Files of a folder, one for each hour: history-2026112217.weir. A file is a sequence of frames: the length of a packed
// minute, its CRC-32, both in 4 bytes, little-endian, and the minute. A frame that is torn or damaged ends the file.
const (
	fileName   = "history-2006010215.weir"
	frameBytes = 8
	mostFile   = 128 << 20 // bytes that are read of one file
)

// files writes the minutes of this node. nil writes nothing.
type files struct {
	dir  string
	name string   // of file
	file *os.File // of the current hour; nil: none yet
}

// openFiles reads the files of the last 24 hours, and deletes older ones.
func openFiles(dir string, now time.Time, each func(*slice)) (*files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f := &files{dir: dir}
	list, err := f.sweep(now)
	if err != nil {
		return nil, err
	}
	for _, path := range list {
		if _, err := readFrames(path, func(s *slice) {
			if !s.At.Before(now.Add(-kept)) && !s.At.After(now) {
				each(s)
			}
		}); err != nil {
			return nil, err
		}
	}
	// A folder that cannot be written should fail the start, not the first minute.
	return f, f.open(minuteOf(now))
}

// sweep deletes the files that are too old, and returns the others.
func (f *files) sweep(now time.Time) (list []string, err error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		hour, err := time.Parse(fileName, e.Name())
		switch {
		case err != nil || !e.Type().IsRegular(): // not ours
		case hour.Add(time.Hour + kept).Before(now):
			if err := os.Remove(filepath.Join(f.dir, e.Name())); err != nil {
				return nil, err
			}
		default:
			list = append(list, filepath.Join(f.dir, e.Name()))
		}
	}
	return list, nil
}

// readFrames calls each with the minutes of a file, and returns the length of the part that is whole.
func readFrames(path string, each func(*slice)) (whole int64, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if info.Size() > mostFile {
		return 0, fmt.Errorf("%s has %d bytes; allowed: at most %d. Move it away", path, info.Size(), mostFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for left := text; ; {
		packed, rest, ok := cutFrame(left)
		s, err := unpack(packed)
		if !ok || err != nil {
			return int64(len(text) - len(left)), nil
		}
		each(s)
		left = rest
	}
}

// cutFrame splits the first frame off.
func cutFrame(text []byte) (packed, rest []byte, ok bool) {
	if len(text) < frameBytes {
		return nil, nil, false
	}
	length, sum := binary.LittleEndian.Uint32(text), binary.LittleEndian.Uint32(text[4:])
	text = text[frameBytes:]
	if length > mostPacked || int64(length) > int64(len(text)) {
		return nil, nil, false
	}
	packed = text[:length]
	return packed, text[length:], crc32.ChecksumIEEE(packed) == sum
}

// open opens the file of a minute's hour for appending, without a torn tail.
func (f *files) open(minute int64) error {
	name := time.Unix(minute*60, 0).UTC().Format(fileName)
	if f.file != nil && name == f.name {
		return nil
	}
	path := filepath.Join(f.dir, name)
	whole, err := readFrames(path, func(*slice) {})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err = file.Truncate(whole); err == nil {
		_, err = file.Seek(whole, 0)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if f.file != nil {
		f.file.Close() // every frame was written, or its error returned
	}
	f.file, f.name = file, name
	return nil
}

// write appends a minute. It is not synced: after a loss of power the tail of the file is missing.
func (f *files) write(minute int64, packed []byte) error {
	if f == nil {
		return nil
	}
	if err := f.open(minute); err != nil {
		return err
	}
	var frame bytes.Buffer
	var head [frameBytes]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(packed)))
	binary.LittleEndian.PutUint32(head[4:], crc32.ChecksumIEEE(packed))
	frame.Write(head[:])
	frame.Write(packed)
	if _, err := f.file.Write(frame.Bytes()); err != nil {
		f.file.Close()
		f.file = nil // the next one cuts the torn frame off
		return err
	}
	_, err := f.sweep(time.Unix(minute*60, 0))
	return err
}

// close writes the last minute, which may not be over.
func (f *files) close(minute int64, packed []byte) error {
	err := f.write(minute, packed)
	if f.file != nil {
		err = errors.Join(err, f.file.Close())
	}
	if err != nil {
		return fmt.Errorf("the history of the last minute is lost: %s", strings.TrimSpace(err.Error()))
	}
	return nil
}
