package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/web"
)

// problemOf converts an error. It hides errors of the ledger and the store, which may contain an address.
func problemOf(err error) (p *web.Problem, hides bool) {
	var changed *ledger.ConflictError
	var reverted *ledger.RevertedError
	var lost *ledger.LostError
	var wrong *rules.Error
	var input *weir.InputError
	switch {
	case errors.As(err, &p):
		return p, false
	case errors.As(err, &changed):
		p := web.Refuse(http.StatusPreconditionFailed, "%s", changed)
		p.Current = &changed.Is
		return p, false
	case errors.As(err, &reverted):
		return web.Refuse(conflict, "%s", reverted), false
	case errors.Is(err, ledger.ErrForeign):
		return web.Refuse(http.StatusForbidden, "%s", err), false
	case errors.As(err, &lost):
		return web.Refuse(conflict, "%s", lost), false
	case errors.Is(err, ledger.ErrReplaced):
		return web.Refuse(conflict, "the file of the ledger: %s; the change was not made", ledger.ErrReplaced), false
	case errors.As(err, &wrong):
		p := web.Refuse(invalid, "%s", wrong)
		for _, m := range wrong.Problems {
			p.Mistakes = append(p.Mistakes,
				web.Mistake{Line: m.Line, Column: m.Column, Field: m.Field, Message: m.Message})
		}
		return p, false
	case errors.As(err, &input):
		return web.Refuse(invalid, "%s", input), false
	case errors.Is(err, ledger.ErrNoRule), errors.Is(err, ledger.ErrNoException):
		return web.Refuse(missing, "%s", err), false
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return web.Refuse(http.StatusServiceUnavailable,
			"the request timed out; read again whether a change was made"), true
	}
	return web.Refuse(http.StatusServiceUnavailable, "the ledger or the store did not answer; the server's log has "+
		"the reason. Read again whether a change was made"), true
}
