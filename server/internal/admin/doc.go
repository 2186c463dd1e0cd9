// Package admin is the operators' API: it changes rules and exceptions while the server runs, in
// JSON and YAML over HTTP, below /v1/admin/. Document describes the operations; docs/reference/admin.md has an
// example of each.
//
// Each write sends the revision that its author has read (If-Match, or If-None-Match: * for a new
// entry), so that no author overwrites unread changes. Each write is in the ledger's history and in the
// log, including resets of keys and ends of bans: author, time, reason and changes. A server without
// a ledger shows its rules, resets keys and lifts bans, and refuses everything else.
package admin
