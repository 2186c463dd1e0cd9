package history

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// fileSuffix is the suffix of a document's file: 1m-20261122T1703.json.gz.
const fileSuffix = ".json.gz"

func (h *History) file(s slot) string { return filepath.Join(h.Dir, s.String()+fileSuffix) }

// restore reads the documents of the folder. One that is damaged is left out.
func (h *History) restore() error {
	if h.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		return err
	}
	list, err := h.sweep()
	for _, s := range list {
		text, readErr := os.ReadFile(h.file(s))
		err = errors.Join(err, readErr)
		if _, damaged := unpack(text); damaged == nil {
			h.own[s] = text
		}
	}
	return err
}

// sweep deletes the files that are too old, and returns the others.
func (h *History) sweep() (list []slot, err error) {
	if h.Dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(h.Dir)
	now := h.now()
	for _, e := range entries {
		s, ours := parseSlot(strings.TrimSuffix(e.Name(), fileSuffix))
		switch {
		case !ours || !e.Type().IsRegular():
		case now.Sub(s.end()) > s.keeps():
			err = errors.Join(err, os.Remove(h.file(s)))
		default:
			list = append(list, s)
		}
	}
	return list, err
}

// write writes the file of a document. It is not synced: a loss of power may take the last minutes.
func (h *History) write(s slot) error {
	if h.Dir == "" {
		return nil
	}
	temporary := filepath.Join(h.Dir, "document.new")
	if err := os.WriteFile(temporary, h.own[s], 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, h.file(s))
}
