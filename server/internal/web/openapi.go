package web

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Schema is a JSON Schema of OpenAPI 3.0.
type Schema map[string]any

// An API is the subject of an OpenAPI document.
type API struct {
	Title, Doc string
	Operations []Operation
	Statuses   map[int]string    // meanings of error statuses, besides the usual
	Schemas    map[string]Schema // that Ref refers to
}

// Ref is a reference to a schema of API.Schemas.
func Ref(name string) Schema { return Schema{"$ref": "#/components/schemas/" + name} }

// An Enum is a type of texts that has these values.
type Enum interface{ Values() []string }

// An Operation is one method of a path.
type Operation struct {
	Method, Path, ID string
	Summary          string
	Parameters       []Parameter
	// Body has the schema of the body, or a value of its type, by media type.
	Body map[string]any
	// Answers are values of the types of the answer; it is one of them. Empty: the status is 204.
	Answers []any
	Errors  []int
	// Refusal tells that any error status can have an answer instead of a problem.
	Refusal string
}

// A Parameter is one of the query, the header or the path.
type Parameter struct {
	Name, In, Doc string
	Required      bool
	Schema        Schema
}

// usual are the meanings of error statuses.
var usual = map[int]string{
	http.StatusBadRequest:            "The query, a header or the body is invalid; nothing was done.",
	http.StatusUnauthorized:          "The token is missing or unknown.",
	http.StatusForbidden:             "The caller may not do it, or the request comes from a page of another site.",
	http.StatusNotFound:              "It does not exist.",
	http.StatusRequestEntityTooLarge: "The body is too large.",
	http.StatusUnsupportedMediaType:  "The body has another type.",
	http.StatusTooManyRequests:       "Too many attempts of this client.",
	http.StatusServiceUnavailable:    "The store did not answer.",
}

// Document returns the OpenAPI document of an API. Schemas are made from the types of Go: the tag json
// has a field's name, doc its description, enum its values, and min and max its bounds.
func (a *API) Document() []byte {
	d := document{schemas: Schema{}, responses: Schema{}, types: map[string]reflect.Type{}}
	for name, schema := range a.Schemas {
		d.schemas[name] = schema
	}
	meanings := maps.Clone(usual)
	maps.Copy(meanings, a.Statuses)
	problem := d.of(reflect.TypeFor[Problem]())
	paths := Schema{}
	for i := range a.Operations {
		op := &a.Operations[i]
		methods, _ := paths[op.Path].(Schema)
		if methods == nil {
			methods = Schema{}
			paths[op.Path] = methods
		}
		methods[strings.ToLower(op.Method)] = d.operation(op, meanings, problem)
	}
	text, err := json.Marshal(Schema{
		"openapi":  "3.0.3",
		"info":     Schema{"title": a.Title, "version": "1", "description": a.Doc},
		"security": []Schema{{}, {"token": []string{}}},
		"paths":    paths,
		"components": Schema{
			"schemas":         d.schemas,
			"responses":       d.responses,
			"securitySchemes": Schema{"token": Schema{"type": "http", "scheme": "bearer"}},
		},
	}, json.Deterministic(true), jsontext.WithIndent(" "))
	if err != nil {
		panic(fmt.Sprint("openapi: ", err)) // of strings, numbers, lists and maps alone
	}
	return text
}

// A document has the parts that operations share.
type document struct {
	schemas, responses Schema
	types              map[string]reflect.Type // of schemas, by name
}

func (d *document) operation(op *Operation, meanings map[int]string, problem Schema) Schema {
	answer := d.oneOf(op.Answers)
	responses := Schema{"200": response("Done.", Schema{"application/json": answer}, "")}
	if len(op.Answers) == 0 {
		responses = Schema{"204": response("Done.", nil, "")}
	}
	for _, status := range op.Errors {
		text := strconv.Itoa(status)
		header := ""
		if status == http.StatusUnauthorized {
			header = "WWW-Authenticate"
		}
		one := response(meanings[status], Schema{"application/problem+json": problem}, header)
		if op.Refusal != "" {
			one["content"].(Schema)["application/json"] = Schema{"schema": answer}
			responses[text] = one
			continue
		}
		d.responses[text] = one
		responses[text] = Schema{"$ref": "#/components/responses/" + text}
	}
	if op.Refusal != "" {
		refused := response(op.Refusal, Schema{"application/json": answer}, "Retry-After")
		responses["4XX"], responses["5XX"] = refused, refused
	}
	out := Schema{"operationId": op.ID, "summary": op.Summary, "responses": responses}
	var parameters []Schema
	for _, p := range op.Parameters {
		parameters = append(parameters, Schema{"name": p.Name, "in": p.In, "description": p.Doc,
			"required": p.Required || p.In == "path", "schema": p.Schema})
	}
	if parameters != nil {
		out["parameters"] = parameters
	}
	if op.Body != nil {
		content := Schema{}
		for kind, body := range op.Body {
			content[kind] = Schema{"schema": d.value(body)}
		}
		out["requestBody"] = Schema{"required": true, "content": content}
	}
	return out
}

// response returns a response with these schemas by media type.
func response(doc string, schemas Schema, header string) Schema {
	content := Schema{}
	for kind, schema := range schemas {
		content[kind] = Schema{"schema": schema}
	}
	r := Schema{"description": doc, "content": content}
	if header != "" {
		r["headers"] = Schema{header: Schema{"schema": Schema{"type": "string"}}}
	}
	return r
}

func (d *document) oneOf(values []any) Schema {
	var list []Schema
	for _, value := range values {
		list = append(list, d.value(value))
	}
	if len(list) == 1 {
		return list[0]
	}
	return Schema{"oneOf": list}
}

// value returns a schema as it is, and otherwise the schema of the value's type.
func (d *document) value(value any) Schema {
	switch value := value.(type) {
	case Schema:
		return value
	case []any:
		return d.oneOf(value)
	}
	return d.of(reflect.TypeOf(value))
}

func (d *document) of(t reflect.Type) Schema {
	if t == reflect.TypeFor[time.Time]() {
		return Schema{"type": "string", "format": "date-time"}
	}
	if enum, ok := reflect.Zero(t).Interface().(Enum); ok {
		return Schema{"type": "string", "enum": enum.Values()}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.of(t.Elem())
	case reflect.Slice:
		return Schema{"type": "array", "items": d.of(t.Elem())}
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": d.of(t.Elem())}
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Float64:
		return Schema{"type": "number"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return Schema{"type": "integer", "format": "int64"}
	case reflect.Struct:
		return d.named(t)
	}
	panic("openapi: " + t.String() + " has no schema")
}

// named returns a reference to the schema of a struct. Of two types with one name, the second has its package's name
// before it.
func (d *document) named(t reflect.Type) Schema {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if other := d.types[name]; other != nil && other != t {
		name = path.Base(t.PkgPath()) + name
	}
	d.types[name] = t
	if d.schemas[name] == nil {
		properties := Schema{}
		d.schemas[name] = Schema{} // it may refer to itself
		required := d.fields(t, properties)
		d.schemas[name] = Object(properties, required...)
	}
	return Ref(name)
}

// Object returns the schema of an object with these properties and no others.
func Object(properties Schema, required ...string) Schema {
	s := Schema{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// fields adds the fields of a struct, and returns the names of fields that are always present.
func (d *document) fields(t reflect.Type, properties Schema) (required []string) {
	for i := range t.NumField() {
		field := t.Field(i)
		if field.Anonymous {
			required = append(required, d.fields(field.Type, properties)...)
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		optional := options == "omitzero" || options == "omitempty"
		schema := d.of(field.Type)
		switch kind := field.Type.Kind(); {
		case kind == reflect.Pointer && !optional:
			schema["nullable"] = true
		case kind == reflect.Bool && optional:
			schema["enum"] = []bool{true}
		}
		tag(schema, field.Tag)
		if schema["$ref"] != nil && schema["description"] != nil {
			schema = Schema{"allOf": []Schema{{"$ref": schema["$ref"]}}, "description": schema["description"]}
		}
		properties[name] = schema
		if !optional {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	return required
}

// tag adds a field's tags.
func tag(schema Schema, tag reflect.StructTag) {
	if doc := tag.Get("doc"); doc != "" {
		schema["description"] = doc
	}
	if values := tag.Get("enum"); values != "" {
		schema["enum"] = strings.Split(values, "|")
	}
	least, most := "minimum", "maximum"
	if schema["type"] == "array" {
		least, most = "minItems", "maxItems"
	}
	for name, key := range map[string]string{"min": least, "max": most} {
		if n, err := strconv.Atoi(tag.Get(name)); err == nil {
			schema[key] = n
		}
	}
}
