package admin

import (
	"context"
	_ "embed"

	"github.com/go-json-experiment/json/jsontext"
)

//go:embed openapi.json
var document []byte

func openAPI(context.Context, *call) (any, error) { return jsontext.Value(document), nil }
