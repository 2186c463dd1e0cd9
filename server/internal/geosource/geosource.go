// Package geosource reads files in MaxMind's format (MMDB), which have countries or autonomous systems of addresses,
// and again after each change.
//
// A file is read into memory as a whole: a map of it would end the process when another program truncates it. It is
// checked before it is used, so that a half-written or hostile file is not used: the last good one stays.
package geosource

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// MaxFile is the largest file in bytes.
const MaxFile = 1 << 30

// A Source is some files; the first that knows an address decides. It is a ruleset.Source without rules, so
// that it is reloaded and reported like the others, and a gate.Geo.
type Source struct {
	files []*file
	poll  time.Duration
	none  *rules.File // what Load returns
}

// A file is one database, read again when it has changed.
type file struct {
	path    string
	now     atomic.Pointer[database] // the last good one; nil: none yet
	seen    os.FileInfo              // of the last reading; nil: there was none
	summary string                   // of the content in use
	err     error                    // why the current content is not
}

// New makes a source of files, and reads them. Each must be good.
func New(paths []string, poll time.Duration) (*Source, error) {
	s := &Source{poll: poll, none: &rules.File{Name: "geo"}}
	for _, path := range paths {
		s.files = append(s.files, &file{path: path})
	}
	if err := s.Load(context.Background(), true).Err; err != nil {
		return nil, err
	}
	return s, nil
}

// Has reports whether some file has countries, and whether some has autonomous systems.
func (s *Source) Has() (country, asn bool) {
	for _, f := range s.files {
		d := f.now.Load()
		country, asn = country || d.country, asn || d.asn
	}
	return country, asn
}

// Country implements gate.Geo.
func (s *Source) Country(client netip.Addr) (code string) {
	for _, f := range s.files {
		if d := f.now.Load(); d.country && code == "" {
			d.lookUp(client, func(r *record) { code = r.country() })
		}
	}
	return code
}

// ASN implements gate.Geo.
func (s *Source) ASN(client netip.Addr) (number uint32) {
	for _, f := range s.files {
		if d := f.now.Load(); d.asn && number == 0 {
			d.lookUp(client, func(r *record) { number = r.asn })
		}
	}
	return number
}

// Load implements ruleset.Source. A file that has not changed is read only on a reload.
func (s *Source) Load(_ context.Context, reload bool) ruleset.Update {
	var errs []error
	var revisions []string
	for _, f := range s.files {
		f.load(reload)
		if f.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.path, f.err))
		}
		revisions = append(revisions, f.summary)
	}
	n := ruleset.Update{Revision: strings.Join(revisions, ", "), Err: errors.Join(errs...)}
	if n.Err == nil {
		n.File = s.none
	}
	return n
}

// Wait implements ruleset.Source: databases change once a week, so that they are not watched.
func (s *Source) Wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(s.poll):
	}
}

// Close implements ruleset.Source.
func (s *Source) Close() {}

func (f *file) load(reload bool) {
	info, err := os.Stat(f.path)
	if err != nil {
		f.seen, f.err = nil, err
		return
	}
	if !info.Mode().IsRegular() || info.Size() > MaxFile { // opening a pipe would wait for its writer
		f.seen, f.err = nil, fmt.Errorf("it is no regular file of at most %d bytes", MaxFile)
		return
	}
	if f.seen != nil && !reload && os.SameFile(info, f.seen) && info.Size() == f.seen.Size() &&
		info.ModTime().Equal(f.seen.ModTime()) {
		return
	}
	f.seen = info // what is written meanwhile has another time, and is read again
	content, err := read(f.path)
	if err != nil {
		f.err = err
		return
	}
	d, err := open(content)
	if f.err = err; err != nil {
		return
	}
	if before := f.now.Load(); before != nil && (before.country && !d.country || before.asn && !d.asn) {
		f.err = errors.New("it lacks what the file had before: countries, or autonomous systems")
		return
	}
	f.now.Store(d)
	sum := sha256.Sum256(content)
	f.summary = fmt.Sprintf("%s %x", d.built().UTC().Format(time.DateOnly), sum[:4])
}

// read reads a file of a size that was checked, which may have grown since.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	content := make([]byte, min(info.Size(), MaxFile))
	if _, err := io.ReadFull(f, content); err != nil {
		return nil, fmt.Errorf("it was truncated while it was read: %w", err)
	}
	return content, nil
}
