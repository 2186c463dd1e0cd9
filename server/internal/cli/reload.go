package cli

import (
	"context"
	"os"
	"time"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/server/internal/web"
)

// reload reads all sources for a request, and returns when their rules are in force, or their mistakes.
// A client that disconnects does not cancel a reload that others wait for. The answer must be written
// before apiBodies.
func (v *server) reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiBodies-apiBodies/10)
	defer cancel()
	return v.engine.Reload(ctx)
}

// mistakesOf are the mistakes in an error, for the answer.
func mistakesOf(err error) (list []web.Mistake) {
	for _, m := range engine.Mistakes(err) {
		list = append(list, web.Mistake{
			File: m.File, Line: m.Line, Column: m.Column, Field: m.Field, Message: m.Message,
		})
	}
	return list
}

// reloadWithin is the timeout of a reload on a signal. Sources read before it stay in force.
const reloadWithin = 30 * time.Second

// reloadOn reads all sources on each signal. It logs the result, since unchanged sources send no
// event.
func (v *server) reloadOn(hup <-chan os.Signal) {
	for range hup {
		ctx, cancel := context.WithTimeout(context.Background(), reloadWithin)
		v.notify.reloading()
		err := v.engine.Reload(ctx)
		cancel()
		v.notify.reloaded(err)
		rules := len(v.engine.Gate.Rules().Rules())
		if err == nil {
			v.log.Info("reload: all rules are in force", "signal", "hangup", "rules", rules)
			continue
		}
		mistakes := engine.Mistakes(err)
		v.log.Error("reload: not all rules are in force", "signal", "hangup", "rules", rules, "mistakes", len(mistakes))
		for _, m := range mistakes {
			v.log.Error("rules: "+m.Message, engine.Place(&m, "")...)
		}
	}
}
