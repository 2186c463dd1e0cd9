package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/server/internal/web"
)

// AuditRecords are records of the audit log that match.
type AuditRecords struct {
	Records []telemetry.AuditRecord `json:"records"` // the latest first
	From    time.Time               `json:"from"`    // there is none before
}

// Defaults of a search of the audit log.
const (
	defaultAudit = 100
	maxAudit     = 1000
	auditSpan    = 24 * time.Hour
	auditWithin  = 10 * time.Second // a search reads all records of its interval
)

// searchAudit searches where this server records refusals, bans and changes: Redis has the records of all nodes.
func (h *handler) searchAudit(ctx context.Context, c *call) (any, error) {
	if h.Audit == nil {
		return nil, web.Refuse(http.StatusForbidden, "this server has no audit log that it can read: start it with "+
			"--audit redis, or --audit FILE")
	}
	most, err := c.most(defaultAudit, maxAudit)
	if err != nil {
		return nil, err
	}
	f := &telemetry.AuditFilter{Rule: c.query.Get("rule"), Outcome: c.query.Get("outcome"), Node: c.query.Get("node"),
		RequestID: c.query.Get("request_id"), Key: c.query.Get("key"), Method: c.query.Get("method"),
		Path: c.query.Get("path")}
	now := time.Now()
	if f.Since, err = c.moment("from", now); err != nil {
		return nil, err
	}
	if f.Until, err = c.moment("until", now); err != nil {
		return nil, err
	}
	if f.Since.IsZero() {
		f.Since = now.Add(-auditSpan)
	}
	within, cancel := context.WithTimeout(ctx, auditWithin)
	defer cancel()
	list, err := h.Audit(within, f, most)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, web.Refuse(http.StatusServiceUnavailable, "the records since %s were not read within %s; "+
			"allowed: a later from", f.Since.UTC().Format(time.RFC3339), auditWithin)
	}
	answer := AuditRecords{Records: make([]telemetry.AuditRecord, len(list)), From: f.Since.UTC()}
	for i := range list {
		answer.Records[len(list)-1-i] = list[i]
	}
	return render(answer, err)
}
