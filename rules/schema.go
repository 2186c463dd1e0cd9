package rules

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema is the JSON Schema (draft 2020-12) of a file of rules, for editors: they complete
// fields and explain them. It knows less than Parse: what it accepts may still be wrong.
func Schema() []byte { return slices.Clone(schema) }
