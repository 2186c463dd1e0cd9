//go:build !small

package redisconn

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir"
)

// Scan looks at some keys of a master, and returns the keys that match a glob pattern. It begins at the cursor of the
// call before, "" at first; next is "" after the last key of the last master. A key that is there all the time is
// returned at least once.
func (c *rueidisConn) Scan(ctx context.Context, cursor, match string, look int64) (
	keys []string, next string, err error) {
	library := c.live.Load()
	if library == nil {
		return nil, "", unavailable(ctx, NotExecuted, errReplaced)
	}
	nodes := library.Nodes()
	addresses := slices.Sorted(maps.Keys(nodes))
	if cursor == "" && len(addresses) > 0 {
		cursor = addresses[0] + " 0"
	}
	address, number, _ := strings.Cut(cursor, " ")
	at, known := slices.BinarySearch(addresses, address)
	from, err := strconv.ParseUint(number, 10, 64)
	if !known || err != nil {
		return nil, "", &weir.InputError{Field: "cursor", Given: cursor,
			Allowed: "that of the answer before; if the nodes of Redis have changed since, begin again without one"}
	}
	keys, from, err = c.scanNode(ctx, nodes[address], from, match, look)
	switch {
	case err != nil:
		return nil, "", c.explain(ctx, err)
	case from != 0:
		next = address + " " + strconv.FormatUint(from, 10)
	case at+1 < len(addresses):
		next = addresses[at+1] + " 0"
	}
	return keys, next, nil
}

// scanNode scans a node, from the beginning if from is 0. Replicas have the keys of their masters.
func (c *rueidisConn) scanNode(ctx context.Context, node rueidis.Client, from uint64, match string, look int64) (
	keys []string, next uint64, err error) {
	one := &library{node}
	if c.cluster && from == 0 {
		role, err := c.do(ctx, one, one.B().Role().Build()).ToArray()
		if err != nil {
			return nil, 0, err
		}
		if word, _ := role[0].ToString(); word != "master" {
			return nil, 0, nil
		}
	}
	entry, err := c.do(ctx, one, one.B().Scan().Cursor(from).Match(match).Count(look).Build()).AsScanEntry()
	return entry.Elements, entry.Cursor, err
}
