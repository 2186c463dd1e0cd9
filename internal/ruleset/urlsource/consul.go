package urlsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/weirproject/weir/rules"
)

// A consul is a key of Consul's KV store, which is watched by blocking queries:
// https://developer.hashicorp.com/consul/api-docs/features/blocking.
type consul struct {
	*Source
	query url.Values
	index uint64 // of the last answer
}

func (s *Source) newConsul(path []string) (center, error) {
	query, key := s.url.Query(), []string{strings.Join(path, "/")}
	if err := s.parts(key, "consul+https://HOST:PORT/KEY", "dc", "ns", "partition"); err != nil {
		return nil, err
	}
	query.Set("raw", "true")
	return &consul{Source: s, query: query}, nil
}

func (c *consul) read(ctx context.Context) ([]byte, error) {
	body, err := c.get(ctx, c.query)
	if errors.Is(err, statusError(http.StatusNotFound)) {
		return nil, fmt.Errorf("the key does not exist: %w", err)
	}
	return body, err
}

func (c *consul) await(ctx context.Context) error {
	query := url.Values{"index": {strconv.FormatUint(c.index, 10)}, "wait": {longPoll.String()}}
	maps.Copy(query, c.query)
	_, err := c.get(ctx, query)
	return err
}

// get requests the key, and remembers the index of the answer, also one below the last: it comes from a server that was
// restored.
func (c *consul) get(ctx context.Context, query url.Values) ([]byte, error) {
	request, err := c.ask(ctx, http.MethodGet, "/v1/kv"+c.url.Path, query, nil)
	if err != nil {
		return nil, err
	}
	token, err := c.secret()
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("X-Consul-Token", token)
	}
	header, body, err := c.call(request, rules.MaxFile+1)
	if err != nil {
		return nil, err
	}
	index, err := strconv.ParseUint(header.Get("X-Consul-Index"), 10, 64)
	if err != nil || index == 0 { // which would not wait
		return nil, errors.New("the answer has no X-Consul-Index: this is no Consul")
	}
	c.index = index
	return body, nil
}
