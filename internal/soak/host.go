//go:build unix

package main

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// A host implements the part of testing.TB that redistest uses: temporary files, clean-up and failures.
type host struct {
	testing.TB // nil: the other methods are not implemented

	mu       sync.Mutex
	dirs     int
	root     string
	cleanups []func()
}

func newHost() (*host, error) {
	root, err := os.MkdirTemp("", "weir-soak-")
	return &host{root: root}, err
}

// close ends the servers, and removes their files.
func (h *host) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.cleanups {
		h.cleanups[len(h.cleanups)-1-i]()
	}
	os.RemoveAll(h.root)
}

// A failure is the panic value of Fatal.
type failure struct{ text string }

func (h *host) Helper() {}

func (h *host) Fatal(args ...any) { panic(failure{fmt.Sprint(args...)}) }

func (h *host) Fatalf(format string, args ...any) { panic(failure{fmt.Sprintf(format, args...)}) }

func (h *host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cleanups = append(h.cleanups, f)
}

func (h *host) TempDir() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dirs++
	dir := fmt.Sprintf("%s/%d", h.root, h.dirs)
	if err := os.Mkdir(dir, 0o700); err != nil {
		panic(failure{err.Error()})
	}
	return dir
}
