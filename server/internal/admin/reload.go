package admin

import (
	"context"
	"net/http"

	"github.com/weirproject/weir/server/internal/web"
)

// reload reads all sources, and answers when their rules are in force, or with the mistakes in them.
func (h *handler) reload(ctx context.Context, _ *call) (any, error) {
	err := h.Reload(ctx)
	status := h.Status()
	if err != nil {
		p := web.Refuse(http.StatusServiceUnavailable,
			"some rules could not be read in time; the last valid rules stay in force")
		for _, layer := range status.Layers {
			if layer.Err != nil && !layer.Down {
				p = web.Refuse(invalid, "some rules are invalid; the last valid rules stay in force")
			}
		}
		p.Mistakes = h.Mistakes(err)
		return nil, p
	}
	if n := status.LeftOut(); n > 0 {
		p := web.Refuse(invalid, "invalid rules that are not in force: %d; all others are in force", n)
		for _, layer := range status.Layers {
			if layer.LeftOut > 0 {
				p.Mistakes = append(p.Mistakes, h.Mistakes(layer.Warning)...)
			}
		}
		return nil, p
	}
	answer := Reloaded{Revision: status.Revision(), Rules: len(h.Gate.Rules().Rules())}
	for _, layer := range status.Layers {
		answer.Sources = append(answer.Sources, ReloadedSource{layer.Name, layer.Revision, layer.Rules})
	}
	return answer, nil
}
