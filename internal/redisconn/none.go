//go:build small

package redisconn

import (
	"context"
	"errors"
)

var errNone = errors.New("this program was built with -tags small, which leaves out Redis: build it without the tag")

// Open fails, as there is no client library in this program.
func Open(_ context.Context, url string, _ Config) (Conn, error) {
	if err := CheckURL(url); err != nil {
		return nil, err
	}
	return nil, errNone
}

// OpenClient fails as Open does.
func OpenClient(ctx context.Context, url string, config Config) (Client, error) {
	_, err := Open(ctx, url, config)
	return nil, err
}
