package rules_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

func TestResponsesAreLaidOverEachOther(t *testing.T) {
	const file = `response: {status: 503, body: "wait {{.RetryAfter}}", content_type: text/html}` + "\n"
	for name, test := range map[string]struct {
		file, rule string
		want       rules.Response
	}{
		"nothing":            {"", "", rules.Response{Status: 429, Fields: rules.DraftFields, Body: "problem", ContentType: "application/problem+json"}},
		"the file's":         {file, "", rules.Response{Status: 503, Fields: rules.DraftFields, Body: "wait {{.RetryAfter}}", ContentType: "text/html"}},
		"a rule's status":    {file, "response: {status: 403}", rules.Response{Status: 403, Fields: rules.DraftFields, Body: "wait {{.RetryAfter}}", ContentType: "text/html"}},
		"a rule's body":      {file, "response: {body: json, fields: none}", rules.Response{Status: 503, Fields: rules.NoFields, Body: "json", ContentType: "application/json"}},
		"a rule's type":      {file, "response: {content_type: text/x-a}", rules.Response{Status: 503, Fields: rules.DraftFields, Body: "wait {{.RetryAfter}}", ContentType: "text/x-a"}},
		"a template's type":  {file, "response: {body: no}", rules.Response{Status: 503, Fields: rules.DraftFields, Body: "no", ContentType: "text/plain; charset=utf-8"}},
		"the words of epoch": {"", "response: {fields: unix_time}", rules.Response{Status: 429, Fields: rules.UnixTimeFields, Body: "problem", ContentType: "application/problem+json"}},
	} {
		got := *compiled(t, test.file+"rules: [{name: a, limit: 1/1m, "+test.rule+"}]").Rules()[0].Response()
		if (got.Template != nil) != (got.Body != "problem" && got.Body != "json") {
			t.Errorf("%s: the template of %q is %v", name, got.Body, got.Template)
		}
		if got.Template = nil; got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestTemplatesOfBodies(t *testing.T) {
	refusal := rules.Refusal{Status: 429, RetryAfter: 7, Message: `Say "please" <b>`, Violated: []string{"a", "b"}, Language: "en"}
	for body, want := range map[string]string{
		"no": "no",
		"{{.Status}} {{.RetryAfter}} {{.Message}} {{.Language}}":                                `429 7 Say "please" <b> en`,
		`{"m":{{json .Message}},"v":{{json .Violated}}}`:                                        `{"m":"Say \"please\" \u003cb\u003e","v":["a","b"]}`,
		"{{range $i, $v := .Violated}}{{if $i}}, {{end}}{{$v}}:{{$.Status}}{{else}}none{{end}}": "a:429, b:429",
		`{{if and .RetryAfter (eq .Language "en")}}in {{.RetryAfter}} s{{else}}never{{end}}`:    "in 7 s",
		"{{.Message | html}}{{/* nothing */}}":                                                  "Say &#34;please&#34; &lt;b&gt;",
		`{{or .Message "x" | html | json}}`:                                                     `"Say \u0026#34;please\u0026#34; \u0026lt;b\u0026gt;"`,
		"{{len .Violated}}{{range .Violated}}{{.}}{{end}}":                                      "2ab",
	} {
		set, err := rules.Compile(&rules.File{Name: "f", Response: rules.Response{Body: body}, Rules: []rules.Spec{{Name: "a", Limit: []string{"1/1s"}}}})
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		var b strings.Builder
		if err := set.Rules()[0].Response().Template.Execute(&b, &refusal); err != nil || b.String() != want {
			t.Errorf("%s: %q, %v; want %q", body, b.String(), err, want)
		}
	}
}

// TestTemplatesThatMayNotBe tells what is said of those that fail, or could run away.
func TestTemplatesThatMayNotBe(t *testing.T) {
	for body, want := range map[string]string{
		"{{.Mesage}}":                        `did you mean "Message"?`,
		"{{if .Status}}\n{{.Foo}}":           "line 2",
		"a\nb {{":                            "line 2",
		"{{if eq .Status 1}}{{.Foo}}{{end}}": `line 1:21: unknown field ".Foo"`,
		"{{$.Foo}}":                          `unknown field ".Foo"`,
		"{{.Message.Foo}}":                   "none of their own",
		"{{range 1000000000}}x{{end}}":       "range goes only through .Violated",
		"{{range .Violated}}{{range .Violated}}{{end}}{{end}}":      "range goes only through .Violated",
		"{{range .Message}}{{end}}":                                 "range goes only through .Violated",
		`{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`:     "define and block",
		`{{define "body"}}{{template "body"}}{{end}}`:               "not allowed",
		`{{template "body"}}`:                                       "not allowed",
		`{{block "a" .}}{{end}}`:                                    "define and block",
		`{{printf "%999999999d" 1}}`:                                `function "printf"`,
		"{{$a := .Message}}{{$a}}":                                  "only range may make variables",
		"{{range $i, $v := .Violated}}{{$v = .}}{{end}}":            "only range may make variables",
		"{{.Message | js | js | js | js}}":                          "at most 3",
		"{{with .Violated}}{{.}}{{end}}":                            "not allowed",
		"{{index .Violated 5}}":                                     `function "index"`,
		"{{len .Status}}":                                           "len",
		"{{if lt .Status .Message}}{{end}}":                         "incompatible types",
		"{{call .Message}}":                                         `function "call"`,
		"{{(print .Status).Foo}}":                                   "fields stand alone",
		"{{break}}":                                                 "break",
		"{{if eq .Status 418}}{{len .Status}}{{end}}":               "len",
		"{{range .Violated}}{{else}}{{len .Status}}{{end}}":         "len",
		"{{and (eq .Status 418) (len .Status)}}":                    "len",
		"{{lt (or (and (eq .Status 418) .Message) .RetryAfter) 1}}": "cannot take what or gives",
		"{{or .Message .RetryAfter | len}}":                         "cannot take what or gives",
		"{{range $v := .Violated}}{{$v.Foo}}{{end}}":                "none of their own",
		"{{nothing}}":                                               "nothing",
	} {
		_, err := rules.Compile(&rules.File{Name: "f", Response: rules.Response{Body: body}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f: response.body: ") {
			t.Errorf("%s: %v; want %s", body, err, want)
		}
	}
}
