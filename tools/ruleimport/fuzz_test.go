package ruleimport_test

import (
	"slices"
	"testing"

	"github.com/weirproject/weir/tools/ruleimport"
	"github.com/weirproject/weir/tools/ruleimport/importtest"
)

// FuzzImport: any text is an error with a line, or becomes a valid rule file.
func FuzzImport(f *testing.F) {
	for i, format := range ruleimport.Names() {
		for _, text := range seeds[format] {
			f.Add(i, text)
		}
	}
	for _, proof := range nginxProofs {
		f.Add(slices.Index(ruleimport.Names(), "nginx"), proof.http)
	}
	f.Fuzz(func(t *testing.T, i int, text string) {
		formats := ruleimport.Names()
		format := formats[((i%len(formats))+len(formats))%len(formats)]
		importtest.Any(t, "weir import "+format, ruleimport.Formats[format], text)
	})
}

// seeds are texts of each format.
var seeds = map[string][]string{
	"envoy": {"domain: a\ndescriptors:\n- key: b\n  value: c*\n  rate_limit: {unit: day, requests_per_unit: 1}\n  descriptors:\n  - key: d"},
	"nginx": {zoned + "include x; limit_req zone=z;"},
}
