package ratelimitconf_test

import (
	"testing"

	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/rules"
)

func parsed(t testing.TB, text string) *ratelimitconf.Config {
	t.Helper()
	config, err := ratelimitconf.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestALimitIsARule(t *testing.T) {
	t.Parallel()
	file, err := ratelimitconf.Compile([]*ratelimitconf.Config{parsed(t, `
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: {unit: month, requests_per_unit: 5}
`)}, ratelimitconf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Rules) != 1 || file.Rules[0].Name != "messaging.message_type_marketing.to_number" ||
		file.Rules[0].Limit[0] != "fixed_window 5/30d epoch" {
		t.Errorf("%+v", file.Rules)
	}
	if _, err := rules.Compile(file); err != nil {
		t.Error(err)
	}
}
