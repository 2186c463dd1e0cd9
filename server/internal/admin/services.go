package admin

import (
	"context"

	"github.com/weirproject/weir/internal/servermetrics"
)

// listServices answers with the services and routes of the gateway; without a gateway the lists are empty.
func (h *handler) listServices(context.Context, *call) (any, error) {
	answer := Services{Services: []servermetrics.Service{}, Routes: []servermetrics.Route{}}
	if h.Services != nil {
		answer.Services = append(answer.Services, h.Services()...)
		answer.Routes = append(answer.Routes, h.Routes()...)
	}
	return answer, nil
}
