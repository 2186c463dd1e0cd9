// Package admin is the operators' API: it changes rules and exceptions while the server runs, in
// JSON and YAML over HTTP, below /v1/admin/.
//
//	GET    rules, rules/NAME              the rules in force and in the ledger
//	PUT    rules/NAME                     a rule in YAML or JSON; ?dry_run=true changes nothing
//	DELETE rules/NAME
//	POST   rules/NAME/enable, /disable, /rollback?to=REVISION
//	GET    rules/NAME/compare             the effect of its candidate
//	POST   rules/NAME/promote             make the candidate its limit
//	POST   diff                           the effect of a proposed rule or file
//	GET    history
//	GET    exceptions, exceptions/ID
//	POST   exceptions                     other limits, a block or an allow, for a while
//	DELETE exceptions/ID
//	GET    keys                           the remaining units of a key under a rule
//	POST   keys/reset
//	GET    bans                           the bans in force
//	POST   bans/lift                      end a ban
//	POST   restore                        write back lost changes of the ledger
//	GET    openapi.json                   a description of all these
//
// Each write sends the revision that its author has read (If-Match, or If-None-Match: * for a new
// entry), so that nobody overwrites unread changes. Each write is in the ledger's history and in the
// log, including resets of keys and ends of bans: author, time, reason and changes. A server without
// a ledger shows its rules, resets keys and lifts bans, and refuses everything else. docs/admin.md
// has an example of each.
package admin
