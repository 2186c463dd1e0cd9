package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/source"
	"github.com/weirproject/weir/rules/source/redissource"
)

// setsLayer is what the sets are called that lists of the file name.
const setsLayer = "sets"

// addSets adds the sets that lists name, or may name once the file is changed. Only who
// writes the file may name what is read here.
func (f *ruleFlags) addSets(ctx context.Context, l *setup, layers []source.Layer) ([]source.Layer, error) {
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
	if err == nil && len(names) > 0 && at != l.store.url { // the store is opened, which says more
		err = probe(ctx, at)
	}
	if err != nil {
		return nil, fmt.Errorf("the sets that lists name: %s: %w", masked(at), err)
	}
	sets.Keep(names)
	l.sets = sets
	return append(layers, source.Layer{Name: setsLayer, Source: sets, AllowEmpty: true}), nil
}

// setsURL is the Redis that has the sets: the one of the rules, of several the one that wins,
// or else the store.
func (f *ruleFlags) setsURL(store string) string {
	if n := len(f.hashes); n > 0 && f.hashes[n-1] != inStore {
		return f.hashes[n-1]
	}
	return store
}

// namesRedis reports whether a Redis was named in which sets may be looked up; the store that a
// file names is only asked by a server.
func (f *ruleFlags) namesRedis() bool { return f.store.url != memory || len(f.hashes) > 0 }

// noRedis is the mistake of naming sets where there is nowhere to read them.
func noRedis(file *rules.File) error {
	names := file.SetNames()
	if len(names) == 0 {
		return nil
	}
	return &rules.Error{Problems: []rules.Problem{{File: file.Name, Field: "redis",
		Message: fmt.Sprintf("a list names the set %.80q, and there is no Redis to read it from: name one in --store or --rules, or in store of the file", names[0])}}}
}

// keepSets has only those sets read that rules in force name, and tells what of them names
// nobody, once while it lasts.
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

// warnLeftOut tells who explains a request what of the sets names nobody.
func warnLeftOut(s *System, left error, asked bool) {
	for _, m := range mistakesOf(left) {
		warnTo(s.Err, m.Message)
	}
	if left != nil && !asked {
		warnTo(s.Err, "sets are read where --store or --rules names a Redis")
	}
}
