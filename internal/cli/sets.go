package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/redissource"
	"github.com/weirproject/weir/rules"
)

// setsLayer is the name of the layer of Redis sets that lists of the file use.
const setsLayer = "sets"

// addSets adds the layer of the sets that lists of the file use now, or may use after a change.
// Only the file may name sets: other sources could make the server read any key.
func (f *ruleFlags) addSets(ctx context.Context, l *setup, layers []ruleset.Layer) ([]ruleset.Layer, error) {
	names := l.set.SetNames()
	if f.config == "" || isURL(f.config) || l.primary.static && len(names) == 0 {
		return layers, nil
	}
	at := f.setsURL(l.store.url)
	if at == memory {
		l.setless = true
		return layers, noRedis(l.file)
	}
	opts := []redissource.Option{redissource.WithChannel(f.listsChannel), redissource.WithRefresh(f.refresh)}
	if f.allowEmpty {
		opts = append(opts, redissource.WithAllowEmpty())
	}
	sets, err := redissource.NewSets(at, opts...)
	if err == nil && len(names) > 0 && at != l.store.url { // opening the store gives a better error
		err = probe(ctx, at)
	}
	if err != nil {
		return nil, fmt.Errorf("sets of allow and deny lists: %s: %w", masked(at), err)
	}
	sets.Keep(names)
	l.sets = sets
	return append(layers, ruleset.Layer{Name: setsLayer, Source: sets, AllowEmpty: true}), nil
}

// setsURL is the URL of the Redis with the sets: the last of --rules, or else the store.
func (f *ruleFlags) setsURL(store string) string {
	if n := len(f.hashes); n > 0 && f.hashes[n-1] != inStore {
		return f.hashes[n-1]
	}
	return store
}

// namesRedis reports whether flags name a Redis to read sets from. Only a server uses the store
// that a file names.
func (f *ruleFlags) namesRedis() bool { return f.store.url != memory || len(f.hashes) > 0 }

// noRedis returns a mistake if the file uses sets, for a setup without Redis.
func noRedis(file *rules.File) error {
	names := file.SetNames()
	if len(names) == 0 {
		return nil
	}
	text := fmt.Sprintf("a list uses the set %.80q, but there is no Redis: name one in --store, --rules, or store "+
		"of the file",
		names[0])
	return &rules.Error{Problems: []rules.Problem{{File: file.Name, Field: "redis", Message: text}}}
}

// keepSets reads only the sets that rules in force use, and logs each invalid member once while it
// is there.
func (l *live) keepSets(set *rules.Set) {
	if l.setup.sets == nil {
		return
	}
	l.setup.sets.Keep(set.SetNames())
	var left []string
	for _, m := range mistakesOf(set.LeftOut()) {
		if left = append(left, m.Message); !slices.Contains(l.leftOut, m.Message) {
			l.log.Warn("rules: "+m.Message, m.where(setsLayer)...)
		}
	}
	l.leftOut = left
}

// warnLeftOut prints warnings about invalid members of sets, and about sets that were not read.
func warnLeftOut(s *System, left error, asked bool) {
	for _, m := range mistakesOf(left) {
		warnTo(s.Err, m.Message)
	}
	if left != nil && !asked {
		warnTo(s.Err, "sets are not read: name a Redis in --store or --rules")
	}
}
