package web_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/weirproject/weir/server/internal/web"
)

type inner struct {
	At time.Time `json:"at"`
}

type example struct {
	Name    string   `json:"name" doc:"What it is called." enum:"a|b"`
	Count   int64    `json:"count" min:"1" max:"9"`
	List    []string `json:"list,omitzero" min:"2" max:"3"`
	Left    *int64   `json:"left"`
	Failed  bool     `json:"failed,omitzero"`
	Inner   inner    `json:"inner" doc:"Another."`
	ignored string
}

// TestDocumentDescribesTypes: the schema of a type is made of its fields and their tags.
func TestDocumentDescribesTypes(t *testing.T) {
	api := web.API{Title: "Title", Doc: "About.", Operations: []web.Operation{{
		Method: "GET", Path: "/v1/x", ID: "x", Summary: "Does.", Answers: []any{example{ignored: ""}}, Errors: []int{401},
	}}}
	var got struct {
		Info       map[string]string
		Paths      map[string]map[string]map[string]any
		Components struct {
			Schemas   map[string]any
			Responses map[string]map[string]any
		}
	}
	if err := json.Unmarshal(api.Document(), &got); err != nil {
		t.Fatal(err)
	}
	var want any
	if err := json.Unmarshal([]byte(`{
		"type": "object", "additionalProperties": false, "required": ["count", "inner", "left", "name"],
		"properties": {
			"name": {"type": "string", "description": "What it is called.", "enum": ["a", "b"]},
			"count": {"type": "integer", "format": "int64", "minimum": 1, "maximum": 9},
			"list": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3},
			"left": {"type": "integer", "format": "int64", "nullable": true},
			"failed": {"type": "boolean", "enum": [true]},
			"inner": {"allOf": [{"$ref": "#/components/schemas/Inner"}], "description": "Another."}
		}}`), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Components.Schemas["Example"], want) {
		t.Errorf("the schema is %v, want %v", got.Components.Schemas["Example"], want)
	}
	operation, refused := got.Paths["/v1/x"]["get"], got.Components.Responses["401"]
	if got.Info["description"] != "About." || operation["operationId"] != "x" || operation["summary"] != "Does." ||
		refused["description"] != "The token is missing or unknown." || refused["headers"] == nil {
		t.Errorf("%v %v %v", got.Info, operation, refused)
	}
}
