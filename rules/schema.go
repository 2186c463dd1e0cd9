package rules

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema is the JSON Schema (draft 2020-12) of a file of rules, for completion in editors. It checks less than
// Parse.
func Schema() []byte { return slices.Clone(schema) }
