package ruletest_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/ruletest"
)

func schema(t *testing.T) (document map[string]any, compiled *jsonschema.Schema) {
	t.Helper()
	text, err := ruletest.Schema()
	if err != nil {
		t.Fatal(err)
	}
	return parsedSchema(t, text)
}

func parsedSchema(t *testing.T, text []byte) (document map[string]any, compiled *jsonschema.Schema) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", value); err != nil {
		t.Fatal(err)
	}
	if compiled, err = compiler.Compile("schema.json"); err != nil {
		t.Fatal(err)
	}
	return value.(map[string]any), compiled
}

func TestSchemaAcceptsTheTestsOfThePages(t *testing.T) {
	_, compiled := schema(t)
	files, err := filepath.Glob("../../../docs/tests/*.test.yaml")
	examples, _ := filepath.Glob("../../../examples/*/*.test.yaml")
	if err != nil || len(files) < 15 || len(examples) < 3 {
		t.Fatal(files, examples, err)
	}
	for _, name := range append(files, examples...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var value map[string]any
		if err := yaml.Unmarshal(text, &value); err != nil {
			t.Fatal(err)
		}
		if start, ok := value["start"].(time.Time); ok { // editors see the text
			value["start"] = start.Format(time.RFC3339)
		}
		if err := compiled.Validate(value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSchemaHasTheFieldsOfParse: Parse lists them in the mistake of an unknown one.
func TestSchemaHasTheFieldsOfParse(t *testing.T) {
	document, compiled := schema(t)
	for place, text := range map[string]string{
		"test_case":     "rules: r\ntests: [{none: 1}]",
		"test_request":  step("none: 1"),
		"test_expect":   step("expect: {none: 1}"),
		"test_response": step("response: {none: 1}"),
	} {
		one := document["$defs"].(map[string]any)[place].(map[string]any)
		want := strings.Join(slices.Sorted(maps.Keys(one["properties"].(map[string]any))), ", ")
		_, err := ruletest.Parse("a.yaml", []byte(text))
		var list *rules.Error
		if !errors.As(err, &list) || !strings.HasSuffix(list.Problems[0].Message, "allowed: "+want) {
			t.Errorf("%s: the schema has %s, Parse says %v", place, want, err)
		}
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		if compiled.Validate(value) == nil {
			t.Errorf("%s: the schema accepts an unknown field", place)
		}
	}
}
