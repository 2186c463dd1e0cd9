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
		"nothing":            {"", "", rules.Response{Status: 429, Fields: "draft", ContentType: "application/problem+json"}},
		"the file's":         {file, "", rules.Response{Status: 503, Fields: "draft", Body: "wait {{.RetryAfter}}", ContentType: "text/html"}},
		"a rule's status":    {file, "response: {status: 403}", rules.Response{Status: 403, Fields: "draft", Body: "wait {{.RetryAfter}}", ContentType: "text/html"}},
		"a rule's body":      {file, "response: {body: json, fields: none}", rules.Response{Status: 503, Fields: "none", Body: "json", ContentType: "application/json"}},
		"a rule's type":      {file, "response: {content_type: text/x-a}", rules.Response{Status: 503, Fields: "draft", Body: "wait {{.RetryAfter}}", ContentType: "text/x-a"}},
		"a template's type":  {file, "response: {body: no}", rules.Response{Status: 503, Fields: "draft", Body: "no", ContentType: "text/plain; charset=utf-8"}},
		"the words of epoch": {"", "response: {fields: unix_time}", rules.Response{Status: 429, Fields: "unix_time", ContentType: "application/problem+json"}},
	} {
		rule := compiled(t, test.file+"rules: [{name: a, limit: 1/1m, "+test.rule+"}]").Rules()[0]
		got := rule.Response()
		text, ok := rule.Body(&rules.Refusal{RetryAfter: 7})
		if ok != (got.Body != "" && got.Body != "problem" && got.Body != "json") || ok && string(text) != strings.Replace(got.Body, "{{.RetryAfter}}", "7", 1) {
			t.Errorf("%s: the text of %q is %q, %v", name, got.Body, text, ok)
		}
		if *got != test.want {
			t.Errorf("%s: %+v, want %+v", name, *got, test.want)
		}
	}
}

func TestPlaceholdersOfBodies(t *testing.T) {
	refusal := rules.Refusal{Status: 429, RetryAfter: 7, Message: `Say "please" <b>`, Violated: []string{"a", "b"}, Language: "en"}
	for body, want := range map[string]string{
		"no": "no",
		"{{.Status}} {{.RetryAfter}} {{ .Message }} {{.Language}} {{.Violated}}": `429 7 Say "please" <b> en a, b`,
		`{"m":{{json .Message}},"v":{{json .Violated}},"s":{{json .Status}}}`:    `{"m":"Say \"please\" \u003cb\u003e","v":["a","b"],"s":429}`,
		"{{.Message | html}}{{html .Message}}":                                   "Say &#34;please&#34; &lt;b&gt;Say &#34;please&#34; &lt;b&gt;",
		"?{{urlquery .Message}}#{{js .Message}}":                                 `?Say+%22please%22+%3Cb%3E#Say \"please\" \u003Cb\u003E`,
		"a } {b}} {{.Status}}}":                                                  "a } {b}} 429}",
	} {
		set, err := rules.Compile(&rules.File{Name: "f", Response: rules.Response{Body: body}, Rules: []rules.Spec{{Name: "a", Limit: []string{"1/1s"}}}})
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if got, ok := set.Rules()[0].Body(&refusal); string(got) != want || !ok {
			t.Errorf("%s: %q, %v; want %q", body, got, ok, want)
		}
	}
}

// TestOtherTemplatesAreMistakes: what text/template could do is refused, with what to write.
func TestOtherTemplatesAreMistakes(t *testing.T) {
	const conditions = "is no placeholder; allowed: {{.Status}}, {{.RetryAfter}}, {{.Message}}, {{.Violated}}, {{.Language}}, " +
		"and to escape a value {{html .Message}}, {{json .Message}}, {{js .Message}}, {{urlquery .Message}}; write the text for all cases"
	for body, want := range map[string]string{
		"{{.Mesage}}":                        `line 1: unknown field ".Mesage"; did you mean "Message"?`,
		"{{.Status}}\n{{.Foo}}":              `line 2: unknown field ".Foo"`,
		"{{.Status\n}}{{.Foo}}":              `line 2: unknown field ".Foo"`,
		"a\nb {{":                            "line 2: {{ without }}",
		"{{.Message.Foo}}":                   "unknown field",
		"{{}}":                               "{{}} " + conditions,
		"{{if .RetryAfter}}x{{end}}":         "{{if .RetryAfter}} " + conditions,
		"{{range .Violated}}{{.}}{{end}}":    "{{range .Violated}} " + conditions,
		`{{define "a"}}{{end}}`:              conditions,
		`{{printf "%999999999d" 1}}`:         conditions,
		"{{$.Message}}":                      conditions,
		"{{- .Message -}}":                   conditions,
		"{{.Message | js | js}}":             conditions,
		"{{.Message | quote}}":               conditions,
		"{{/* nothing */}}":                  conditions,
		`{{if eq .Language "zh"}}x{{end}}`:   conditions,
		"{{len .Violated}}":                  conditions,
		"{{html (.Message)}}":                conditions,
		"{{" + strings.Repeat("x", 9) + "}}": "{{xxxxxxxxx}} is no placeholder",
	} {
		_, err := rules.Compile(&rules.File{Name: "f", Response: rules.Response{Body: body}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f: response.body: ") {
			t.Errorf("%s: %v; want %s", body, err, want)
		}
	}
}
