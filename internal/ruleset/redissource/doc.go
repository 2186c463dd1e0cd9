// Package redissource reads rules from Redis, where they are stored as hashes, one for each rule, and changes are
// announced on a channel. Only redis-cli is needed to add, change, disable or delete a rule:
//
//	HSET rate_limit_config:login limitType IP limitTarget "*" limitCount 5 \
//	  timeWindow 60 strategy SLIDING_WINDOW enabled true
//	PUBLISH rate_limit_config RELOAD_ALL
//
// The fields, and the handling of each mistake, are described in docs/reference/redis-hashes.md.
//
// The hashes are authoritative. They are read at the start, at RELOAD_ALL, after each reconnection,
// and every 30 seconds in case a message was lost. A message with a rule in JSON is applied at once,
// until the next reading of its hash. A rule with mistakes does not affect the others: its last good
// version stays in force. The rules also stay if Redis is down or has lost its data.
//
// A [Ledger] is the other way to store rules in Redis: as YAML, with revisions, a history and
// rollback, for programs and admin pages.
package redissource
