package webvalues_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/webvalues"
)

// TestFieldsOfBodies: one value that every service reads, none, or a doubtful one.
func TestFieldsOfBodies(t *testing.T) {
	const doubtful = "(doubtful)"
	tests := map[webvalues.Format]map[string]string{
		webvalues.Form: {
			"": "", "user=ann": "ann", "a=b&user=a%6en": "ann", "us%65r=ann": "ann", "user=ann+b": "ann b", "user=": "", "user": "",
			"user=ann&user=ann": "ann", "user=ann&user=bob": doubtful, "user=ann&us%65r=bob": doubtful, "user=%zz": doubtful,
			"user=ann%00": doubtful, "user[]=ann": doubtful, "user=ann&User=bob": doubtful, "a=b;user=ann": doubtful,
			"user=ann;x=1": doubtful, "password=a;b&user=ann": "ann", "a=user=bob": "", `{"user":"ann"}`: "",
			strings.Repeat("a=b&", 1000) + "user=ann": doubtful,
		},
		webvalues.JSON: {
			"": "", `{}`: "", `{"user":"ann"}`: "ann", ` { "user" : "ann" } `: "ann", `{"us\u0065r":"a\u006en"}`: "ann", `{"user":5}`: "5",
			`{"user":null}`: "", `{"user":""}`: "", `{"password":{"user":"bob"},"user":"ann"}`: "ann", `{"a":{"user":"bob"}}`: "",
			`{"user":"ann","user":"ann"}`: "ann", `{"user":"ann","user":"bob"}`: doubtful, `{"user":null,"user":"bob"}`: doubtful,
			`{"user":"ann","User":"bob"}`: doubtful, `{"USER":"bob"}`: doubtful, `{"user":["ann"]}`: doubtful,
			`{"user":{"$ne":""}}`: doubtful, `{"user":true}`: doubtful, `{"user":5.0}`: doubtful, `{"user":5e0}`: doubtful,
			`{"user":-0}`: doubtful, `{"user":1234567890123456}`: doubtful, `{"user":"\ud800"}`: doubtful, `{"user":"a\u0000"}`: doubtful,
			"{\"user\":\"\xff\"}": doubtful, `{"user":"ann"}{"user":"bob"}`: doubtful, `{"user":"ann"`: doubtful,
			`{"user":"ann",}`: doubtful, `{user:"ann"}`: doubtful, "\ufeff" + `{"user":"ann"}`: doubtful, `[{"user":"ann"}]`: "",
			`"user"`: "", "user=ann": doubtful,
			`{"a":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `,"user":"ann"}`: doubtful,
			`{` + strings.Repeat(`"a":1,`, 1000) + `"user":"ann"}`:                                 doubtful,
		},
	}
	for format, bodies := range tests {
		for text, want := range bodies {
			b := webvalues.NewBody(format, []byte(text), "")
			got := b.Value("user")
			if b.Doubtful("user") {
				got = doubtful
			}
			if got != want {
				t.Errorf("format %d, %.60q: %q, want %q", format, text, got, want)
			}
		}
	}
}

// TestFormatsOfBodies: what a service may decode otherwise is not read.
func TestFormatsOfBodies(t *testing.T) {
	for text, want := range map[string]webvalues.Format{
		"application/x-www-form-urlencoded": webvalues.Form, "Application/X-WWW-Form-Urlencoded; charset=UTF-8": webvalues.Form,
		"application/json": webvalues.JSON, "application/vnd.api+json;charset=utf-8": webvalues.JSON,
		"application/json; charset=utf-16": webvalues.Unread, "application/json, text/plain": webvalues.Unread, "": webvalues.Unread,
		"text/json": webvalues.Unread, "multipart/form-data; boundary=x": webvalues.Unread, "application/json; charset": webvalues.Unread,
	} {
		if got := webvalues.FormatOf(http.Header{"Content-Type": {text}}); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	for _, h := range []http.Header{{}, {"Content-Type": {"application/json", "text/plain"}},
		{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}} {
		if got := webvalues.FormatOf(h); got != webvalues.Unread {
			t.Errorf("%v: %d", h, got)
		}
	}
}
