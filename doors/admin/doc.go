// Package admin is the door for operators: rules and exceptions that change while the server
// runs, in JSON and YAML over HTTP, below /v1/admin/.
//
//	GET    rules, rules/NAME              what is in force and what the ledger has
//	PUT    rules/NAME                     a rule in YAML or JSON; ?dry_run=true only tells
//	DELETE rules/NAME
//	POST   rules/NAME/enable, /disable, /rollback?to=REVISION
//	GET    rules/NAME/compare             what its candidate would change
//	POST   rules/NAME/promote             make the candidate its limit
//	POST   diff                           what a proposed rule or file would change
//	GET    history
//	GET    exceptions, exceptions/ID
//	POST   exceptions                     other limits, a block or an allow, for a while
//	DELETE exceptions/ID
//	GET    keys                           what is left of a key under a rule
//	POST   keys/reset
//	GET    bans                           who is banned, by this process
//	POST   bans/lift                      end a ban
//	GET    openapi.json                   the words of all these
//
// Whoever writes says what he has seen (If-Match with a revision, or If-None-Match: *), so
// that nobody overwrites what he has not seen. Each write is in the ledger's history and in
// the log, resets of keys and ends of bans too: who, when, why, and what it changed. A server
// without a ledger shows its rules, resets keys and ends bans, and refuses all else. docs/admin.md shows each by an example.
package admin
