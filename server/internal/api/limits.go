package api

import (
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/server/internal/web"
)

// maxCached is the number of limits in a cache.
const maxCached = 16384

// limits caches parsed and printed limits: parsing or printing one takes as long as the rest of a
// decision.
type limits struct {
	parsed  *web.Cache[named, *weir.Limit]
	printed *web.Cache[*weir.Limit, []byte]
}

// A named limit is one as a caller writes it.
type named struct{ name, text string }

func newLimits() *limits {
	return &limits{
		parsed:  web.NewCache[named, *weir.Limit](maxCached),
		printed: web.NewCache[*weir.Limit, []byte](maxCached),
	}
}

// limit parses a limit. The strings may be in memory that is reused.
func (l *limits) limit(name, text string) (*weir.Limit, error) {
	if limit, ok := l.parsed.Get(named{name, text}); ok {
		return limit, nil
	}
	name, text = strings.Clone(name), strings.Clone(text)
	spec, err := weir.ParseLimit(text)
	if err != nil {
		return nil, err
	}
	limit, err := weir.NewLimit(name, spec)
	if err != nil {
		return nil, err
	}
	l.parsed.Put(named{name, text}, limit)
	return limit, nil
}

// append appends a limit as two members of an object: its name, and its text as callers write it.
func (l *limits) append(b []byte, limit *weir.Limit) []byte {
	text, ok := l.printed.Get(limit)
	if !ok {
		text = append(text, `"name":`...)
		text = appendString(text, limit.Name())
		text = append(text, `,"limit":`...)
		text = appendString(text, limit.String())
		l.printed.Put(limit, text)
	}
	return append(b, text...)
}
