package redissource

import "github.com/weirproject/weir/redisstore"

// WithMaxRules limits the number of hashes, or of rules of a Ledger.
func WithMaxRules(most int) Option { return func(c *config) { c.most = most } }

// WithRedis sets options of the connection.
func WithRedis(opts ...redisstore.Option) Option {
	return func(c *config) { c.redis = append(c.redis, opts...) }
}
