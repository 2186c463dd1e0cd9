package filesource

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/weirproject/weir/internal/bounds"
)

// Lists returns a function for rules.WithFiles that reads the lists that the file of rules path
// names, in its directory and below. A link that is absolute or leads out is refused.
func Lists(path string) func(name string) ([]byte, error) {
	dir := filepath.Dir(path)
	return func(name string) ([]byte, error) { return readList(dir, name) }
}

// readList returns at most one byte more than a list may have, which Parse reports.
func readList(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name = filepath.FromSlash(name)
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its writer
		return nil, errors.New("it is no file")
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, bounds.ListFile+1))
	if err != nil {
		return nil, err
	}
	if now, err := root.Stat(name); err != nil || !same(now, info) {
		return nil, errChanging
	}
	return body, nil
}

// lists maps paths of files of values to hashes of their content.
type lists map[string][sha256.Size]byte

// recording is Lists, and records each result.
func (l lists) recording(path string) func(name string) ([]byte, error) {
	read := Lists(path)
	return func(name string) ([]byte, error) {
		body, err := read(name)
		l[filepath.Join(filepath.Dir(path), filepath.FromSlash(name))] = sumOf(body, err)
		return body, err
	}
}

// unchanged reports whether a new reading has the same results.
func (l lists) unchanged(dir string) bool {
	for path, sum := range l {
		name, err := filepath.Rel(dir, path)
		if err != nil || sumOf(readList(dir, filepath.ToSlash(name))) != sum {
			return false
		}
	}
	return true
}

// sumOf also distinguishes errors.
func sumOf(body []byte, err error) [sha256.Size]byte {
	if err != nil {
		body = []byte("\x00" + err.Error())
	}
	return sha256.Sum256(body)
}
