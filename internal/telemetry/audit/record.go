// Package audit records requests that did not pass, bans, operators' changes, changes of rules, the times without a
// store, and the costs of requests in units that have a name. A [Log] takes the records without making a request wait,
// and writes them to a Redis Stream, and to a rotating file.
//
// Every request that did not pass, and every cost, is in a sink, or is counted as lost there.
package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/weirproject/weir/internal/telemetry"
)

// A Record is one line of the audit log.
type Record = telemetry.AuditRecord

// A Filter selects records; empty fields match all.
type Filter = telemetry.AuditFilter

// Keys says how keys are recorded.
type Keys string

// The ways to record keys.
const (
	Shown  Keys = "shown"
	Hashed Keys = "hashed" // as a digest, which is the same on all nodes with the same secret
	Hidden Keys = "hidden" // not at all
)

// Redact returns a key, a path or a client as it is recorded. secret is for Hashed: without one, addresses could be
// found by trying all of them.
func (k Keys) Redact(key string, secret []byte) string {
	switch {
	case key == "" || k == Hidden:
		return ""
	case k == Hashed:
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(key))
		return "hashed:" + hex.EncodeToString(mac.Sum(nil)[:8])
	}
	return strings.ToValidUTF8(key, "\uFFFD")
}

// isFrequent reports whether requests cause records of this kind, and not operators.
func isFrequent(r *Record) bool { return r.Reason != "" || r.Outcome == "ban" }

// numberFields are the fields that are whole numbers, which stand before the others in a stream's entry.
var numberFields = []struct {
	name string
	of   func(r *Record) *int64
}{
	{"wait_ns", func(r *Record) *int64 { return (*int64)(&r.Wait) }},
	{"estimate", func(r *Record) *int64 { return &r.Estimate }},
	{"cost", func(r *Record) *int64 { return &r.Cost }},
}

// textFields are the fields that are texts, in the order of a stream's entry.
var textFields = []struct {
	name string
	of   func(r *Record) *string
}{
	{"node", func(r *Record) *string { return &r.Node }},
	{"outcome", func(r *Record) *string { return &r.Outcome }},
	{"reason", func(r *Record) *string { return &r.Reason }},
	{"rule", func(r *Record) *string { return &r.Rule }},
	{"key", func(r *Record) *string { return &r.Key }},
	{"request_id", func(r *Record) *string { return &r.RequestID }},
	{"method", func(r *Record) *string { return &r.Method }},
	{"path", func(r *Record) *string { return &r.Path }},
	{"client", func(r *Record) *string { return &r.Client }},
	{"unit", func(r *Record) *string { return &r.Unit }},
	{"actor", func(r *Record) *string { return &r.Actor }},
	{"text", func(r *Record) *string { return &r.Text }},
	{"class", func(r *Record) *string { return &r.Class }},
}
