// Package redissource takes rules from a Redis in which somebody keeps them as hashes, one
// for each rule, and announces changes on a channel. Nothing but redis-cli is needed to add,
// change, disable or delete a rule:
//
//	HSET rate_limit_config:login limitType IP limitTarget * limitCount 5 timeWindow 60 strategy SLIDING_WINDOW enabled true
//	PUBLISH rate_limit_config RELOAD_ALL
//
// The layout, what each field becomes and what is lastSent of each mistake: docs/redis-rules.md.
//
// The hashes are the truth. They are read when the source starts, at RELOAD_ALL, after
// each reconnection, and every 30 seconds in case a message was lost. A message that is a
// rule in JSON is applied at once, and is overruled by the hash when that is read next.
// A rule that is wrong changes nothing about the others: its last good version stays in
// force. Neither a Redis that is gone nor one that has lost its data empties the rules.
//
// A [Ledger] is the other way to keep rules in Redis: as YAML, with revisions, a history and
// a way back, for programs and admin pages.
//
// [Sets] has no rules: it reads the sets in Redis by which lists of a file of rules deny or
// allow.
package redissource
