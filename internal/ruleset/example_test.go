package ruleset_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/filesource"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// A server keeps the rules of a file in force while it runs.
func Example() {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "weir.yaml")
	write := func(text string) { // at once, as editors do: a file that is being written is read too
		if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
			log.Fatal(err)
		}
	}
	write("rules: [{name: login, key: [client.ip], limit: 5/1m}]")

	// Nothing is limited until the first rules are in force: a server that must not run
	// without them waits before it listens.
	none, err := rules.Compile(&rules.File{})
	if err != nil {
		log.Fatal(err)
	}
	store := memstore.New()
	defer store.Close()
	g, err := gate.New(store, none, gate.WithLocal(store))
	if err != nil {
		log.Fatal(err)
	}
	file, err := filesource.New(path)
	if err != nil {
		log.Fatal(err)
	}
	keeper, err := ruleset.NewManager([]ruleset.Layer{{Name: "file", Source: file}}, g.Swap,
		ruleset.WithEvents(func(e ruleset.Event) { fmt.Println(e) }))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- keeper.Run(ctx) }()
	if err := keeper.Wait(ctx); err != nil {
		log.Fatal(err)
	}

	// A change is noticed by itself. A caller that reloads, as POST /-/reload does, gets the
	// result.
	write("rules: [{name: login, key: [client.ip], limit: sliding_log 5/1m}, {name: site, limit: 1000/1s}]")
	if err := keeper.Reload(ctx); err != nil {
		log.Fatal(err)
	}
	write("rules: []")
	fmt.Println("reload:", keeper.Reload(ctx))
	fmt.Println(len(g.Rules().Rules()), "rules")

	cancel()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output:
	// file: in force: 1 rules (1 added)
	// ready
	// file: in force: 2 rules (1 changed, 1 added, counts start anew: login)
	// file: refused, 2 rules stay in force: it has no rules any more: its 2 rules stay in force; remove them one by one, or allow this source to be empty
	// reload: file: it has no rules any more: its 2 rules stay in force; remove them one by one, or allow this source to be empty
	// 2 rules
}
