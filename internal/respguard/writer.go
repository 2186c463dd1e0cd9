package respguard

import (
	"bytes"
	"strings"
)

// writer counts the requests of the client library, which are arrays of texts.
type writer struct {
	line  []byte
	words int64 // of the request, still to come
	skip  int64 // bytes of a word, and of the end of its line, still to come
	name  []byte
	named bool // name is complete
	all   int64

	owed    int64          // replies to come before the first subscription, or all
	pending []subscription // in the order in which they were asked for
}

// subscription is a request that is answered by push messages, one for each channel.
type subscription struct {
	channels int64
	owed     int64 // replies to requests after it, and before the next
}

func (w *writer) write(p []byte) {
	for len(p) > 0 {
		if w.skip > 0 {
			n := min(w.skip, int64(len(p)))
			if !w.named {
				w.name = append(w.name, p[:max(0, min(n, w.skip-2))]...)
			}
			p = p[n:]
			if w.skip -= n; w.skip == 0 {
				w.word()
			}
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			w.line = append(w.line, p...)
			return
		}
		w.line = append(w.line, p[:end]...)
		p = p[end+1:]
		w.header(bytes.TrimSuffix(w.line, []byte("\r")))
		w.line = w.line[:0]
	}
}

func (w *writer) header(line []byte) {
	n, _, _ := count(line[min(1, len(line)):])
	if bytes.HasPrefix(line, []byte("$")) {
		w.skip = n + 2
		return
	}
	w.words, w.all, w.name, w.named = n, n, w.name[:0], false
}

// word ends a word of a request; the first word is its name.
func (w *writer) word() {
	w.named = true
	if w.words--; w.words > 0 {
		return
	}
	switch string(w.name) {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		w.pending = append(w.pending, subscription{channels: w.all - 1})
	case "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE": // the library sends PING after it, for its reply
	default:
		if last := len(w.pending) - 1; last >= 0 {
			w.pending[last].owed++
		} else {
			w.owed++
		}
	}
}

// answered takes a reply to the first request without a reply.
func (w *writer) answered(reply shape) error {
	confirms := reply.push && strings.HasSuffix(reply.kind, "subscribe") && !strings.Contains(reply.kind, "unsubscribe")
	switch {
	case reply.push && !confirms:
		return nil
	case confirms && (w.owed > 0 || len(w.pending) == 0):
		return wrong("a subscription that was not asked for")
	case confirms:
		if w.pending[0].channels--; w.pending[0].channels <= 0 {
			w.next()
		}
	case reply.text && reply.kind == "QUEUED":
		return wrong("QUEUED, outside of a transaction")
	case w.owed > 0:
		w.owed--
	case len(w.pending) > 0: // it is refused
		w.next()
	default:
		return wrong("a reply to no request")
	}
	return nil
}

// next goes on to the requests after the first subscription.
func (w *writer) next() {
	w.owed = w.pending[0].owed
	w.pending = w.pending[1:]
}
