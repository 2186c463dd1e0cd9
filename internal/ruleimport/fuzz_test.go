package ruleimport_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/weirproject/weir/internal/ruleimport"
	"github.com/weirproject/weir/rules"
)

// FuzzImport: any text is an error with a line, or becomes a valid rule file.
func FuzzImport(f *testing.F) {
	for i, format := range ruleimport.Formats() {
		for _, text := range seeds[format] {
			f.Add(i, text)
		}
	}
	for _, proof := range nginxProofs {
		f.Add(slices.Index(ruleimport.Formats(), "nginx"), proof.http)
	}
	f.Fuzz(func(t *testing.T, i int, text string) {
		formats := ruleimport.Formats()
		format := formats[((i%len(formats))+len(formats))%len(formats)]
		result, err := ruleimport.Import(format, []ruleimport.Text{{Name: "source", Data: []byte(text)}}, nil)
		if err != nil {
			var list *rules.Error
			if !errors.As(err, &list) || list.Problems[0].Line < 1 {
				t.Fatalf("%s: %v has no line", format, err)
			}
			return
		}
		if yaml, err := result.YAML(); err != nil {
			t.Fatalf("%s: %v\n%s\n%s", format, err, text, yaml)
		}
	})
}

// seeds are texts of each format.
var seeds = map[string][]string{
	"envoy": {"domain: a\ndescriptors:\n- key: b\n  value: c*\n  rate_limit: {unit: day, requests_per_unit: 1}\n  descriptors:\n  - key: d"},
	"kong": {"services: [{name: a, url: http://a:1/b, routes: [{name: r, paths: [/a], plugins: [{name: rate-limiting, config: {day: 1}}]}]}]",
		"plugins: [{name: rate-limiting, config: {second: 1, year: 2, limit_by: header, header_name: X}}]"},
	"spring": {"spring: {cloud: {gateway: {routes: [{id: a, uri: http://b, predicates: [Path=/a/**], filters: [RequestRateLimiter=1]}]}}}"},
	"nginx":  {zoned + "include x; limit_req zone=z;"},
}
