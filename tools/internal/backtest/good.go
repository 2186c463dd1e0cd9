package backtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/weirproject/weir/internal/netaddr"
)

// Legitimate says which clients are certainly legitimate: clients with a request that meets the condition, unless they
// fail nearly always, or clients within the networks.
type Legitimate struct {
	Condition *Condition // nil: none
	Networks  []netip.Prefix

	ids     map[uint64]conduct // of clients, by idOf
	failing int64              // clients that met the condition, and fail
}

// A conduct counts a client's requests in the log.
type conduct struct {
	requests, failing uint32
	good              bool
}

// maxGood bounds the clients that a condition is tried on.
const maxGood = 4 << 20

// ReadNetworks reads addresses and networks, one a line; # begins a comment.
func ReadNetworks(name string, in io.Reader) (list []netip.Prefix, err error) {
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		prefix, err := netaddr.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %.80q; allowed: an address or a network in each line", name, n, text)
		}
		list = append(list, prefix)
	}
	if lines.Err() == nil && len(list) == 0 {
		return nil, fmt.Errorf("%s has no address; allowed: an address or a network in each line", name)
	}
	return list, lines.Err()
}

// has reports whether a request is of a good client.
func (g *Legitimate) has(e *event) bool {
	if g.Condition != nil {
		return g.ids[e.id].good
	}
	for _, network := range g.Networks {
		if network.Contains(e.client) {
			return true
		}
	}
	return false
}

// find reads the log for the clients that meet the condition.
func (g *Legitimate) find(ctx context.Context, c *Config, source Source) error {
	defer source.Close()
	all := *c
	all.Good, all.Where = nil, nil
	g.ids = make(map[uint64]conduct)
	err := newReader(&all).each(ctx, source, func(e *event) error {
		g.observe(e, c)
		return nil
	})
	for id, x := range g.ids {
		if x.good && mostlyFailing(int64(x.requests), int64(x.failing)) {
			g.failing++
			x.good = false
			g.ids[id] = x
		}
	}
	return err
}

// observe notes a request of a client.
func (g *Legitimate) observe(e *event, c *Config) {
	x, known := g.ids[e.id]
	if !known && len(g.ids) == maxGood {
		return
	}
	x.requests++
	if e.failing() {
		x.failing++
	}
	x.good = x.good || g.Condition.meets(e, c.Set)
	g.ids[e.id] = x
}
