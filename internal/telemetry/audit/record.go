// Package audit records exceptions from the ordinary: requests that did not pass, bans, operators' changes,
// changes of rules, and the times without a store. A [Log] takes them without making a request wait, and writes
// them to a Redis Stream, to a rotating file, and to the log.
//
// Every request that did not pass is in a sink, or is counted as left out or lost there.
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
