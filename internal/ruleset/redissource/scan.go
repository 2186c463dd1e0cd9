package redissource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/ruleset"
)

const (
	scanPage = 1000 // keys that one SCAN examines
	readPage = 200  // hashes that one call reads
	// pagesAtOnce keeps Redis busy while results are processed.
	pagesAtOnce = 4
)

// A scan reads all hashes once.
type scan struct {
	client redisconn.Client
	prefix string
	most   int
	known  map[string]*entry // of the last reading, which do not change meanwhile

	pages sync.WaitGroup
	slots chan bool
	mu    sync.Mutex // guards found and err
	found map[string]*Hash
	err   error // the first one of a page
}

func newScan(prefix string, most int, known map[string]*entry) *scan {
	return &scan{prefix: prefix, most: most, known: known, found: make(map[string]*Hash),
		slots: make(chan bool, pagesAtOnce)}
}

// run reads all hashes. Known keys that were not found are read by name before they count as
// deleted, because SCAN misses keys that migrate from one node to another.
func (s *scan) run(ctx context.Context, client redisconn.Client) (found map[string]*Hash, err error) {
	s.client = client
	ctx, cancel := context.WithCancel(ctx)
	defer s.pages.Wait()
	defer cancel()
	nodes, err := s.masters(ctx)
	if err != nil {
		return nil, err
	}
	asked := make(map[string]bool)
	for _, node := range nodes {
		if err := s.node(ctx, node, asked); err != nil {
			return nil, err
		}
	}
	if err := s.wait(); err != nil {
		return nil, err
	}
	var missing []string
	for key := range s.known {
		if _, found := s.found[key]; !found {
			missing = append(missing, key)
		}
	}
	if err := s.read(ctx, missing); err != nil {
		return nil, err
	}
	return s.found, s.wait()
}

// wait waits for all pages.
func (s *scan) wait() error {
	s.pages.Wait()
	return s.failed()
}

func (s *scan) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// masters returns the nodes that hold keys. In a Cluster every one of them must answer, or its rules
// would look deleted.
func (s *scan) masters(ctx context.Context) (list []redisconn.Client, err error) {
	nodes := s.client.Nodes()
	if !s.client.Cluster() {
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
		id, err := answer(ctx, node, redisconn.Command{Name: "CLUSTER", Sub: "MYID"}).Text()
		if err != nil { // a replica may be down; a missing master is found below
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

// holders returns the ids of the masters that have slots.
func (s *scan) holders(ctx context.Context) (map[string]bool, error) {
	rows, err := answer(ctx, s.client, redisconn.Command{Name: "CLUSTER", Sub: "SLOTS"}).List()
	if err != nil {
		return nil, err
	}
	ids := make(map[string]bool)
	for i := range rows {
		row, err := rows[i].List()
		if err != nil || len(row) < 3 {
			return nil, fmt.Errorf("the reply to CLUSTER SLOTS is not understood")
		}
		master, err := row[2].List()
		if err != nil || len(master) < 3 {
			return nil, fmt.Errorf("the reply to CLUSTER SLOTS is not understood")
		}
		id, err := master[2].Text()
		if err != nil {
			return nil, err
		}
		ids[id] = true
	}
	return ids, nil
}

func answer(ctx context.Context, client redisconn.Client, command redisconn.Command) redisconn.Reply {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	return client.Do(ctx, command)
}

// node reads the hashes of one node, except hashes that were read already.
func (s *scan) node(ctx context.Context, node redisconn.Client, asked map[string]bool) error {
	pattern := escape(s.prefix) + "*"
	for cursor := uint64(0); ; {
		page, err := answer(ctx, node,
			redisconn.Command{Name: "SCAN", Args: []string{strconv.FormatUint(cursor, 10),
				"MATCH", pattern, "COUNT", strconv.Itoa(scanPage)}}).Page()
		if err != nil {
			return err
		}
		var keys []string
		for _, key := range page.Keys {
			if !asked[key] && strings.HasPrefix(key, s.prefix) {
				asked[key] = true
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

// escape makes a pattern that matches only the text.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text)
}

// read starts to read hashes by their keys. The error may be of another page.
func (s *scan) read(ctx context.Context, keys []string) error {
	for page := range slices.Chunk(keys, readPage) {
		s.slots <- true
		if err := s.failed(); err != nil {
			<-s.slots
			return err
		}
		s.pages.Go(func() {
			err := s.page(ctx, page)
			s.mu.Lock()
			s.err = cmp.Or(s.err, err)
			s.mu.Unlock()
			<-s.slots
		})
	}
	return nil
}

// page reads those hashes that are not too large for a rule.
func (s *scan) page(ctx context.Context, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	var sizes, hashes []redisconn.Command
	for _, key := range keys {
		sizes = append(sizes, redisconn.Command{Name: "MEMORY", Sub: "USAGE", Keys: []string{key},
			Args: []string{"SAMPLES", strconv.Itoa(samples)}})
	}
	page := make([]*Hash, 0, len(keys))
	var small []string
	for i, result := range s.client.DoMulti(ctx, sizes) {
		size, err := result.Int()
		switch {
		case err == redisconn.ErrNil: // deleted meanwhile
		case err != nil:
			return err
		case size > MaxHash:
			page = append(page, foreign(keys[i], fmt.Sprintf("takes %d bytes; a rule takes at most %d", size, MaxHash)))
		default:
			small = append(small, keys[i])
			hashes = append(hashes, redisconn.Command{Name: "HGETALL", Keys: keys[i : i+1]})
		}
	}
	for i, result := range s.client.DoMulti(ctx, hashes) {
		h, err := s.hash(small[i], result)
		if err != nil {
			return err
		}
		if h != nil {
			page = append(page, h)
		}
	}
	return s.keep(page)
}

// hash returns the hash of a key; nil: it was deleted meanwhile. An unchanged one is not parsed again.
func (s *scan) hash(key string, result redisconn.Reply) (*Hash, error) {
	fields, err := result.Map()
	var refusal *redisconn.ServerError
	if errors.As(err, &refusal) && strings.HasPrefix(refusal.Text, "WRONGTYPE") {
		return foreign(key, "is no hash; allowed: a hash with the fields of a rule"), nil
	}
	if err != nil || len(fields) == 0 {
		return nil, err
	}
	fields = plainFields(fields)
	if e := s.known[key]; e != nil && e.last.foreign == "" && maps.Equal(e.last.fields, fields) {
		return e.last, nil
	}
	return parse(s.prefix, key, fields), nil
}

// keep adds the hashes that were read.
func (s *scan) keep(page []*Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range page {
		s.found[h.key] = h
	}
	if len(s.found) > s.most {
		return refuse("too many", "there are over %d keys %s*; delete some, or allow more",
			s.most, ruleset.Quoted(s.prefix))
	}
	return nil
}

// samples is the number of fields that MEMORY USAGE adds up the sizes of. A hash with more takes over MaxHash in any
// case, so the size is exact where it matters, and the work is bounded.
const samples = 2000
