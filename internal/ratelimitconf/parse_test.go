package ratelimitconf_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/rules"
)

// mistakes are files that do not load, and what is said.
var mistakes = map[string]string{
	"domain: a\ndescriptors:\n- value: x":                      `f:3:3: key is missing`,
	"descriptors: []":                                          `f:1:1: domain is missing`,
	"domain: \"*\"\ndescriptors: []":                           `domain is "*"`,
	"domain: a\ndescriptors: [{key: a}, {key: a}]":             `f:2:25: a descriptor with key "a" and value "" occurs twice`,
	"domain: a\ndescriptors: [{key: a, value: b}, {key: a_b}]": `or another has the same text "a_b"`,
	"domain: a\n---\ndomain: b":                                `f:3:1: a second document`,
	"domain: a\ndescriptors: {}":                               `f:2:14: descriptors must be a list`,
	"domain: a\ndescriptors: [a]":                              `f:2:15: a descriptor must be fields with values`,
	"domain: a\n0.25: b":                                       `f:2:1: the file has the field "0.25"; allowed: descriptors, domain`,
	"domain: a\ndescriptors:\n- {key: a, ratelimit: {}}":       `a descriptor has the field "ratelimit"; allowed: descriptors, detailed_metric, key`,
	"domain: a\ndescriptors:\n- {key: a, rate_limit: {unit: eon, requests_per_unit: 1}}":             `f:3:24: unit is "eon"; allowed: second, minute`,
	"domain: a\ndescriptors:\n- {key: a, rate_limit: {requests_per_unit: 1}}":                        `unit is ""; allowed`,
	"domain: a\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: -1}}":            `requests_per_unit is "-1"; allowed: a whole number from 0 to 4294967295`,
	"domain: a\ndescriptors:\n- {key: a, rate_limit: {unit: day, requestsperunit: 1}}":               `rate_limit has the field "requestsperunit"`,
	"domain: a\ndescriptors:\n- {key: a, rate_limit: {unit: day, unit_multiplier: 0}}":               `unit_multiplier is "0"; allowed: a whole number from 1`,
	"domain: a\ndescriptors:\n- {key: a, rate_limit: {unit: day, unlimited: true}}":                  `unit is "day" beside unlimited`,
	"domain: a\ndescriptors:\n- {key: a, rate_limit: {unit: day, name: me, replaces: [{name: me}]}}": `replaces has "me", the name of the limit itself`,
	"domain: a\ndescriptors:\n- {key: a, rate_limit: {unit: day, name: me, replaces: [{name: }]}}":   `replaces has an element without a name`,
	"domain: a\ndescriptors:\n- {key: a, value: b, share_threshold: true}":                           `share_threshold is for a value with a wildcard; value is "b"`,
	"domain: a\ndescriptors: &x [{key: a, descriptors: *x}]":                                         `over 1000 aliases`,
	"domain: a\ndescriptors: [{key: a, key: b}]":                                                     `"key" occurs twice`,
	"domain: a\ndescriptors: [{key: a, <<: 5}]":                                                      `<< must be followed by fields`,
	"domain: a\ndescriptors: [{key: a, shadow_mode: maybe}]":                                         `shadow_mode is "maybe"; allowed: true, false`,
	"domain: a\ndescriptors: [{key: a, metadata: [1]}]":                                              `metadata must be fields with values`,
	"domain: a\ndescriptors: [{key: [a]}]":                                                           `key must be one value`,
	"domain: a\ndescriptors: [{key: a, rate_limit: 5}]":                                              `rate_limit must be fields with values`,
	"domain: a\ndescriptors: [{key: a, rate_limit: {unit: day, replaces: {name: x}}}]":               `replaces must be a list`,
	"": `f:1:1: the file is empty`, "a: [": `not YAML`, "'''": `not YAML`,
}

func TestMistakesNameTheirLine(t *testing.T) {
	t.Parallel()
	for source, want := range mistakes {
		_, err := ratelimitconf.Parse("f", []byte(source))
		var list *rules.Error
		if !errors.As(err, &list) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", source, err, want)
		}
	}
}

func TestLargeFilesAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		strings.Repeat("#", rules.MaxFile+1):    "the file has over 8388608 bytes",
		"a: [" + strings.Repeat(",", 2_000_000): "commas, colons, brackets, dashes and lines; at most",
		strings.Repeat("descriptors: [{", 100):  "not YAML",
	} {
		if _, err := ratelimitconf.Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200v, want %s", err, want)
		}
	}
}

// TestFieldsAtOtherPlacesAreListed: the service accepts a field at a place where it does not read it.
func TestFieldsAtOtherPlacesAreListed(t *testing.T) {
	t.Parallel()
	config := parsed(t, `
domain: a
descriptors:
  - key: a
    requests_per_unit: 5
    rate_limit: {unit: day, requests_per_unit: 1, shadow_mode: true}
`)
	var got []string
	for i := range config.Ignored {
		got = append(got, strings.SplitN(config.Ignored[i].String(), ";", 2)[0])
	}
	want := "f:5:5: requests_per_unit is not read in a descriptor, and has no effect there|" +
		"f:6:51: shadow_mode is not read in rate_limit, and has no effect there"
	if strings.Join(got, "|") != want || config.Descriptors[0].ShadowMode {
		t.Errorf("%q", got)
	}
}

// TestYAMLOneOne: booleans in the words of YAML 1.1, nulls for what is left out, and values of any type as texts.
func TestYAMLOneOne(t *testing.T) {
	t.Parallel()
	config := parsed(t, `
domain: 7
descriptors:
  - {key: 404, value: true, shadow_mode: yes, quota_mode: off, rate_limit: null, descriptors: ~, metadata: ~}
  - {key: a, metadata: {a: [1, 2.5, x, true, null, {b: 2020-01-01}]}}
`)
	d := config.Descriptors[0]
	if config.Domain != "7" || d.Key != "404" || d.Value != "true" || !d.ShadowMode || d.QuotaMode || d.Limit != nil || d.Metadata != nil {
		t.Errorf("%+v", config)
	}
	if got := fmt.Sprintf("%#v", config.Descriptors[1].Metadata); got != `map[string]interface {}{"a":[]interface {}{1, 2.5, "x", true, interface {}(nil), map[string]interface {}{"b":"2020-01-01"}}}` {
		t.Error(got)
	}
}
