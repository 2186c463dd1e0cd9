package api

import (
	"context"
	_ "embed"
)

//go:embed openapi.json
var openAPIDocument []byte

func (a *api) openAPI(_ context.Context, c *call) error {
	c.out = append(c.out, openAPIDocument...)
	return nil
}
