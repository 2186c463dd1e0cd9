package engine

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
func (l *Setup) addSets(ctx context.Context, layers []ruleset.Layer) ([]ruleset.Layer, error) {
	names := l.Set.SetNames()
	if l.Rules == "" || IsURL(l.Rules) || l.primary.static && len(names) == 0 {
		return layers, nil
	}
	at := l.setsURL()
	if at == Memory {
		l.setless = true
		return layers, l.noRedis(l.File)
	}
	opts := []redissource.Option{redissource.WithChannel(l.SetsChannel), redissource.WithRefresh(l.Refresh)}
	if l.AllowEmpty {
		opts = append(opts, redissource.WithAllowEmpty())
	}
	sets, err := redissource.NewSets(at, opts...)
	if err == nil && len(names) > 0 && at != l.Store { // opening the store gives a better error
		err = probe(ctx, at)
	}
	if err != nil {
		return nil, fmt.Errorf("sets of allow and deny lists: %s: %w", Masked(at), err)
	}
	sets.Keep(names)
	l.sets = sets
	return append(layers, ruleset.Layer{Name: setsLayer, Source: sets, AllowEmpty: true}), nil
}

// setsURL is the URL of the Redis with the sets: the last of Hashes, or else the store.
func (l *Setup) setsURL() string {
	if n := len(l.Hashes); n > 0 && l.Hashes[n-1] != InStore {
		return l.Hashes[n-1]
	}
	return l.Store
}

// noRedis returns a mistake if the file uses sets, for a setup without Redis.
func (l *Setup) noRedis(file *rules.File) error {
	names := file.SetNames()
	if len(names) == 0 {
		return nil
	}
	text := fmt.Sprintf("a list uses the set %.80q, but there is no Redis: name one in %s, %s, or store of the file",
		names[0], l.field("Store"), l.field("Hashes"))
	return &rules.Error{Problems: []rules.Problem{{File: file.Name, Field: "redis", Message: text}}}
}

// keepSets reads only the sets that rules in force use, and logs each invalid member once while it
// is there.
func (e *Engine) keepSets(set *rules.Set) {
	if e.sets == nil {
		return
	}
	e.sets.Keep(set.SetNames())
	var left []string
	for _, m := range Mistakes(set.LeftOut()) {
		if left = append(left, m.Message); !slices.Contains(e.leftOut, m.Message) {
			e.Log.Warn("rules: "+m.Message, Place(&m, setsLayer)...)
		}
	}
	e.leftOut = left
}
