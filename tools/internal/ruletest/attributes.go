package ruletest

import (
	"maps"
	"slices"

	"github.com/weirproject/weir/rules"
)

// attributes gives rules access to the values of a step.
type attributes struct{ step *Step }

var _ rules.Attributes = attributes{}

// Header is a header field by its canonical name.
func (a attributes) Header(name string) string { return a.step.Header[name] }

// Query is a query parameter.
func (a attributes) Query(name string) string { return a.step.Query[name] }

// Cookie is a cookie.
func (a attributes) Cookie(name string) string { return a.step.Cookie[name] }

// Body is a field of the body.
func (a attributes) Body(name string) string { return a.step.Body[name] }

// JSON is the body.
func (a attributes) JSON() *rules.JSON { return new(rules.Set).ReadJSON([]byte(a.step.JSON)) }

// MCP is a part of a message of the Model Context Protocol.
func (a attributes) MCP(part string) string { return a.step.MCP[part] }

// Descriptor is a descriptor.
func (a attributes) Descriptor(name string) string { return a.step.Descriptor[name] }

func sorted(table map[string]string) []string { return slices.Sorted(maps.Keys(table)) }
