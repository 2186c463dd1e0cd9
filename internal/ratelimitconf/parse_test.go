package ratelimitconf_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/rules"
)

func TestMistakesNameTheirLine(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
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
		"": `f:1:1: the file is empty`, "a: [": `not YAML`, "'''": `not YAML`,
	} {
		_, err := ratelimitconf.Parse("f", []byte(source))
		var list *rules.Error
		if !errors.As(err, &list) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", source, err, want)
		}
	}
}
