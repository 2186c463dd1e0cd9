package httplimit

import (
	"net/http"

	"github.com/weirproject/weir/internal/mcp"
	"github.com/weirproject/weir/internal/requestid"
	"github.com/weirproject/weir/internal/webvalues"
	"github.com/weirproject/weir/rules"
)

// attributes gives rules access to a request by name, without copies or maps.
type attributes struct {
	webvalues.Request
	request    *http.Request
	descriptor func(r *http.Request, name string) string
	made       string // the id of a request without one; "": not needed yet
	writer     http.ResponseWriter
	messages   *mcp.Body // nil: no rule is about messages of the Model Context Protocol
	rules      *rules.Set
	replayed   *replayed       // nil: no rule has needed the body
	body       *webvalues.Body // nil: no rule has needed its fields
	json       *rules.JSON     // likewise its JSON
}

var _ rules.Attributes = (*attributes)(nil)

// of fills in zero attributes: copying attributes that were just written is slow.
func (a *attributes) of(r *http.Request, w http.ResponseWriter, descriptor func(*http.Request, string) string) {
	a.Host, a.RawQuery, a.Fields = r.Host, r.URL.RawQuery, r.Header
	a.request, a.descriptor, a.writer = r, descriptor, w
}

// MakeRequestID is the id of a request without an id: see gate.Verdict.
func (a *attributes) MakeRequestID() string {
	if a.made == "" {
		a.made = requestid.New()
	}
	return a.made
}

// Descriptor is a custom descriptor.
func (a *attributes) Descriptor(name string) string {
	if a.descriptor == nil {
		return ""
	}
	return a.descriptor(a.request, name)
}
