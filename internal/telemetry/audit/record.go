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
	"fmt"
	"strings"
	"time"
)

// A Record is one line of the audit log.
type Record struct {
	At        time.Time     `json:"at"`
	Node      string        `json:"node"`
	Outcome   string        `json:"outcome"` // refused, denied, failed, ban, or the kind of a telemetry.Mark
	Reason    string        `json:"reason,omitempty"`
	Rule      string        `json:"rule,omitempty"`
	Key       string        `json:"key,omitempty"` // as the rule's AppendKey makes it; of a denied request: the client
	RequestID string        `json:"request_id,omitempty"`
	Wait      time.Duration `json:"wait_ns,omitempty"` // until it would pass, or the length of a ban; −1: never
	Actor     string        `json:"actor,omitempty"`   // who made a change
	Text      string        `json:"text,omitempty"`
}

// Keys says how keys are recorded.
type Keys string

// The ways to record keys.
const (
	Shown  Keys = "shown"
	Hashed Keys = "hashed" // as a digest, which is the same on all nodes with the same secret
	Hidden Keys = "hidden" // not at all
)

// Redact returns a key as it is recorded. secret is for Hashed: without one, addresses could be found by
// trying all of them.
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

// A Filter selects records; empty fields match all.
type Filter struct {
	Rule, Outcome, Node, RequestID string
	// Key is a key as it is recorded, or one value of it, such as an address.
	Key          string
	Digest       string // of Key, if keys are recorded hashed
	Since, Until time.Time
}

// Matches reports whether the filter selects a record.
func (f *Filter) Matches(r *Record) bool {
	for _, one := range [...]struct{ want, is string }{
		{f.Rule, r.Rule}, {f.Outcome, r.Outcome}, {f.Node, r.Node}, {f.RequestID, r.RequestID},
	} {
		if one.want != "" && one.want != one.is {
			return false
		}
	}
	if f.Key != "" && !f.isKey(r.Key) {
		return false
	}
	return !r.At.Before(f.Since) && (f.Until.IsZero() || r.At.Before(f.Until))
}

func (f *Filter) isKey(key string) bool {
	return key == f.Key || f.Digest != "" && key == f.Digest || strings.Contains(key, valueOf(f.Key))
}

// valueOf is a value as it stands in a key, with its length.
func valueOf(text string) string { return fmt.Sprintf("=%d:%s", len(text), text) }
