package redisstore

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/internal/respguard"
)

// Client connects to the Redis that a URL names, as Open does and with the same URLs, TLS
// and checks of the server, for what a program keeps there beside limits, such as rules.
// The client sends nothing twice, and it is the caller's: closing it closes no store.
//
// WithTimeout does not bound its calls, their contexts do; it says for how long (at least
// 100ms) the server may be silent while calls wait for it, before the connection is given
// up. The options about keys, clocks and warnings do nothing here.
func Client(ctx context.Context, url string, opts ...Option) (rueidis.Client, error) {
	large := func(c *config) { c.most = respguard.Rules }
	silent := append(opts[:len(opts):len(opts)], WithWarn(nil), large)
	conn, err := openConn(ctx, url, silent)
	if err != nil {
		return nil, err
	}
	return &client{conn.live.Load().Client, conn}, nil
}

// client closes what openConn made along with it.
type client struct {
	rueidis.Client
	conn *rueidisConn
}

func (c *client) Close() { c.conn.Close() }
