package memstore

import "bytes"

// LoadLines loads the lines of a snapshot without its head and foot, for the fuzzer: a
// checksum would stop it at the door.
func LoadLines(s *Store, text string) error {
	r := snapshotReader{now: s.now()}
	for one := range bytes.Lines([]byte(text)) {
		if err := r.line(bytes.TrimSuffix(one, []byte("\n"))); err != nil {
			return err
		}
	}
	for _, n := range r.nodes {
		s.adopt(n)
	}
	return nil
}
