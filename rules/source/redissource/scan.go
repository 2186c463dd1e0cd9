package redissource

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/redisstore"
)

const (
	scanPage = 1000 // keys that SCAN looks at in one call
	readPage = 200  // hashes that are read in one
)

// A scan reads all hashes once.
type scan struct {
	client rueidis.Client
	prefix string
	most   int
	known  []string // keys that were there before
	found  map[string]reading
	aside  chan<- func() // what needs no Redis; nil: it is left for later
}

// run reads what there is. Keys that were known and are not found are asked for by name
// before they are taken for deleted: SCAN misses what moves from one node to another.
func (s *scan) run(ctx context.Context, client rueidis.Client) error {
	s.client = client
	if len(s.known) == 0 { // all of it will be new, so it is looked at while Redis answers
		defer s.beside()()
	}
	nodes, err := s.masters(ctx)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if err := s.node(ctx, node); err != nil {
			return err
		}
	}
	var missing []string
	for _, key := range s.known {
		if _, found := s.found[key]; !found {
			missing = append(missing, key)
		}
	}
	return s.read(ctx, missing)
}

// beside begins to do what is put aside, and returns what waits for its end.
func (s *scan) beside() (end func()) {
	aside, done := make(chan func(), 16), make(chan bool)
	go func() {
		for do := range aside {
			do()
		}
		close(done)
	}()
	s.aside = aside
	return func() {
		close(aside)
		<-done
	}
}

// masters are the nodes that hold keys. In a Cluster every one of them must answer, or
// their rules would look deleted.
func (s *scan) masters(ctx context.Context) (list []rueidis.Client, err error) {
	nodes := s.client.Nodes()
	if s.client.Mode() != rueidis.ClientModeCluster {
		for _, node := range nodes {
			list = append(list, node)
		}
		return list, nil
	}
	holders, err := s.holders(ctx)
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		id, err := answer(ctx, node, node.B().ClusterMyid().Build()).ToString()
		if err != nil { // a replica may be gone; a master is missed below
			continue
		}
		if holders[id] {
			list = append(list, node)
			delete(holders, id)
		}
	}
	if len(holders) > 0 {
		return nil, fmt.Errorf("%d of the Cluster's masters do not answer", len(holders))
	}
	return list, nil
}

// holders are the ids of the masters that have slots.
func (s *scan) holders(ctx context.Context) (map[string]bool, error) {
	rows, err := answer(ctx, s.client, s.client.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, err
	}
	ids := make(map[string]bool)
	for i := range rows {
		row, err := rows[i].ToArray()
		if err != nil || len(row) < 3 {
			return nil, fmt.Errorf("the reply to CLUSTER SLOTS is not understood")
		}
		master, err := row[2].ToArray()
		if err != nil || len(master) < 3 {
			return nil, fmt.Errorf("the reply to CLUSTER SLOTS is not understood")
		}
		id, err := master[2].ToString()
		if err != nil {
			return nil, err
		}
		ids[id] = true
	}
	return ids, nil
}

func answer(ctx context.Context, client rueidis.Client, command rueidis.Completed) rueidis.RedisResult {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	return client.Do(ctx, command)
}

// node reads the hashes of one node.
func (s *scan) node(ctx context.Context, node rueidis.Client) error {
	pattern := escape(s.prefix) + "*"
	for cursor := uint64(0); ; {
		page, err := answer(ctx, node, node.B().Scan().Cursor(cursor).Match(pattern).Count(scanPage).Build()).AsScanEntry()
		if err != nil {
			return err
		}
		var keys []string
		for _, key := range page.Elements {
			if _, twice := s.found[key]; !twice && strings.HasPrefix(key, s.prefix) {
				keys = append(keys, key)
			}
		}
		if err := s.read(ctx, keys); err != nil {
			return err
		}
		if cursor = page.Cursor; cursor == 0 {
			return nil
		}
	}
}

// escape writes a text as a pattern that only it matches.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text)
}

// read reads hashes by their keys.
func (s *scan) read(ctx context.Context, keys []string) error {
	for len(keys) > 0 {
		page := keys[:min(len(keys), readPage)]
		keys = keys[len(page):]
		if err := s.page(ctx, page); err != nil {
			return err
		}
		if len(s.found) > s.most {
			return refuse("too many", "there are over %d keys %s*; delete some, or allow more", s.most, quoted(s.prefix))
		}
	}
	return nil
}

// page reads what is not too large to be a rule.
func (s *scan) page(ctx context.Context, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	var sizes, hashes []rueidis.Completed
	for _, key := range keys {
		sizes = append(sizes, s.client.B().MemoryUsage().Key(key).Samples(samples).Build())
	}
	var small []string
	for i, result := range s.client.DoMulti(ctx, sizes...) {
		size, err := result.AsInt64()
		switch {
		case rueidis.IsRedisNil(err): // gone meanwhile
		case err != nil:
			return err
		case size > MaxHash:
			s.found[keys[i]] = reading{foreign: fmt.Sprintf("takes %d bytes; a rule takes at most %d", size, MaxHash)}
		default:
			small = append(small, keys[i])
			hashes = append(hashes, s.client.B().Hgetall().Key(keys[i]).Build())
		}
	}
	page := make(map[string]reading, len(small))
	for i, result := range s.client.DoMulti(ctx, hashes...) {
		r, err := readingOf(result)
		if err != nil {
			return err
		}
		if r.foreign != "" || len(r.fields) > 0 {
			page[small[i]] = r
		}
	}
	s.keep(page)
	return nil
}

// keep adds what was read.
func (s *scan) keep(page map[string]reading) {
	if s.aside != nil {
		for key, r := range page {
			r.seen = new(finding)
			page[key] = r
		}
		s.aside <- func() {
			for key, r := range page {
				*r.seen = *found(s.prefix, key, r.fields)
			}
		}
	}
	maps.Copy(s.found, page)
}

// samples is of how many fields MEMORY USAGE adds up the sizes. A hash with more takes over
// MaxHash in any case, so the size is exact where it matters, and the work is bounded.
const samples = 2000

func readingOf(result rueidis.RedisResult) (reading, error) {
	fields, err := result.AsStrMap()
	if refusal, ok := rueidis.IsRedisErr(err); ok && strings.HasPrefix(refusal.Error(), "WRONGTYPE") {
		return reading{foreign: "is no hash; allowed: a hash with the fields of a rule"}, nil
	}
	return reading{fields: fields}, err
}

// connect makes a client for one session.
func (s *Source) connect(ctx context.Context) (rueidis.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return redisstore.Client(ctx, s.url, append([]redisstore.Option{redisstore.WithTimeout(replyTimeout)}, s.config.redis...)...)
}
