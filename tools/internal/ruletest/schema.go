package ruletest

import (
	_ "embed" // schema.json
	"encoding/json"
	"maps"

	"github.com/weirproject/weir/rules"
)

//go:embed schema.json
var ofTests []byte

// Schema is the JSON Schema (draft 2020-12) of files of tests: the schema of rule files, with tests.
func Schema() ([]byte, error) {
	var whole, tests map[string]any
	if err := json.Unmarshal(rules.Schema(), &whole); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(ofTests, &tests); err != nil {
		return nil, err
	}
	for _, part := range []string{"properties", "$defs"} {
		maps.Copy(whole[part].(map[string]any), tests[part].(map[string]any))
	}
	properties := whole["properties"].(map[string]any)
	named := map[string]any{"type": "string", "minLength": 1, "description": "A file, a directory or a URL with rules."}
	properties["rules"] = map[string]any{"anyOf": []any{named, properties["rules"]}}
	whole["required"] = []string{"rules", "tests"}
	whole["$id"] = "https://github.com/weirproject/weir/rules/tests.schema.json"
	whole["title"], whole["description"] = "tests of weir rules", "See docs/howto/testing-rules.md."
	text, err := json.MarshalIndent(whole, "", "  ")
	return append(text, '\n'), err
}
