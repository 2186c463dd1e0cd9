package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
)

// usage is what a request has cost so far, in tokens.
type usage struct {
	prompt   int64
	streamed int64 // events of the answer: a token each
	reported int64 // by the model, at the end
}

func (u *usage) total() int64 {
	if u.reported > 0 {
		return u.reported
	}
	return u.prompt + u.streamed
}

type usageKey struct{}

// meter has the body of an answer counted as it is streamed.
func meter(response *http.Response) error {
	used, ok := response.Request.Context().Value(usageKey{}).(*usage)
	if ok && response.StatusCode == http.StatusOK {
		response.Body = &metered{ReadCloser: response.Body, usage: used}
	}
	return nil
}

// metered reads server-sent events past, line by line.
type metered struct {
	io.ReadCloser
	usage *usage
	line  []byte
}

// maxEvent is the longest line that is looked at: one without end is not kept.
const maxEvent = 64 << 10

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		if len(m.line) < maxEvent {
			m.line = append(m.line, part...)
		}
		if rest = after; ended {
			m.event()
			m.line = m.line[:0]
		}
	}
	return n, err
}

// event counts a line such as data: {"text":"a"} or data: {"usage":{"total_tokens":7}}.
func (m *metered) event() {
	data, ok := bytes.CutPrefix(m.line, []byte("data: "))
	if !ok {
		return
	}
	var event struct {
		Text  string
		Usage struct {
			Total int64 `json:"total_tokens"`
		}
	}
	if json.Unmarshal(data, &event) != nil {
		return
	}
	if event.Text != "" {
		m.usage.streamed++
	}
	if event.Usage.Total > 0 {
		m.usage.reported = event.Usage.Total
	}
}
