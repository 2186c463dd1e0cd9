package audit

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/weirproject/weir/internal/rotated"
)

// NewFileSink writes records as lines of JSON to a file: see rotated.Open.
func NewFileSink(name string, most int64) (Sink, error) {
	file, err := rotated.Open(name, most)
	if err != nil {
		return nil, err
	}
	return &fileSink{file: file}, nil
}

type fileSink struct {
	file *rotated.File
	text bytes.Buffer
}

func (*fileSink) Name() string { return "file" }
func (*fileSink) Batch() int   { return 1000 }
func (s *fileSink) Close()     { s.file.Close() }

func (s *fileSink) Write(_ context.Context, list []Record) error {
	s.text.Reset()
	encoder := json.NewEncoder(&s.text)
	encoder.SetEscapeHTML(false)
	for i := range list {
		if err := encoder.Encode(&list[i]); err != nil {
			return err
		}
	}
	_, err := s.file.Write(s.text.Bytes())
	return err
}
