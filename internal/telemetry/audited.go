package telemetry

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/keytext"
)

// An AuditRecord is one line of the audit log, which package audit writes.
type AuditRecord struct {
	At        time.Time     `json:"at"`
	Node      string        `json:"node"`
	Outcome   string        `json:"outcome"` // refused, denied, failed, ban, cost, or the kind of a Mark
	Reason    string        `json:"reason,omitempty"`
	Rule      string        `json:"rule,omitempty"`
	Key       string        `json:"key,omitempty"` // as the rule's AppendKey makes it; of a denied request: the client
	RequestID string        `json:"request_id,omitempty"`
	Method    string        `json:"method,omitempty"`
	Path      string        `json:"path,omitempty"` // its first 256 bytes
	Client    string        `json:"client,omitempty"`
	Wait      time.Duration `json:"wait_ns,omitempty"`  // until it would pass, or the length of a ban; −1: never
	Estimate  int64         `json:"estimate,omitempty"` // units that a request asked for, of a metered rule
	Cost      int64         `json:"cost,omitempty"`     // units that it cost in the end, of the outcome cost
	Unit      string        `json:"unit,omitempty"`     // of both, as rules write it
	Actor     string        `json:"actor,omitempty"`    // who made a change
	Text      string        `json:"text,omitempty"`
	Class     string        `json:"class,omitempty"` // of the request, by the rule's reserve
}

// AuditCost is the outcome of the record of a cost: of a request that passed.
const AuditCost = "cost"

// An AuditFilter selects records; empty fields match all. Records of costs, of which there are as many as of requests
// that pass, match only by their outcome, or by a request id.
type AuditFilter struct {
	Rule, Outcome, Node, RequestID, Method string
	// Path is a path, or, with a * at its end, how it begins.
	Path string
	// Key is a key as it is recorded or shown, or one value of it, or the client: an address.
	Key          string
	Digest       string // of Key, if keys are recorded hashed
	Since, Until time.Time
}

// Matches reports whether the filter selects a record.
func (f *AuditFilter) Matches(r *AuditRecord) bool {
	if r.Outcome == AuditCost && !f.Costs() {
		return false
	}
	for _, one := range [...]struct{ want, is string }{
		{f.Rule, r.Rule}, {f.Outcome, r.Outcome}, {f.Node, r.Node}, {f.RequestID, r.RequestID},
		{f.Method, r.Method},
	} {
		if one.want != "" && one.want != one.is {
			return false
		}
	}
	if f.Key != "" && !f.isKey(r.Key) && f.Key != r.Client && (f.Digest == "" || f.Digest != r.Client) {
		return false
	}
	if begin, any := strings.CutSuffix(f.Path, "*"); f.Path != "" && f.Path != r.Path &&
		!(any && strings.HasPrefix(r.Path, begin)) {
		return false
	}
	return !r.At.Before(f.Since) && (f.Until.IsZero() || r.At.Before(f.Until))
}

// Costs reports whether records of costs may match.
func (f *AuditFilter) Costs() bool {
	return f.Outcome == AuditCost || f.Outcome == "" && f.RequestID != ""
}

func (f *AuditFilter) isKey(key string) bool {
	return key == f.Key || f.Digest != "" && key == f.Digest || strings.Contains(key, ValueInKey(f.Key)) ||
		keytext.Described(key) == f.Key || keytext.Has(key, f.Key)
}

// KeyOfClient stands for the key of a denied request.
func KeyOfClient(address string) string { return "client.ip" + ValueInKey(address) }

// ValueInKey is a value as it stands in a key, with its length.
func ValueInKey(text string) string { return fmt.Sprintf("=%d:%s", len(text), text) }
