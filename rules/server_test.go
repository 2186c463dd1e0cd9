package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

func TestServer(t *testing.T) {
	set := compiled(t, good)
	if got := fmt.Sprint(set.Server().Store, " ", set.TrustedProxies(), " ", set.Server().ClientHeader); got != "redis://user:secret@127.0.0.1:6379/0 [10.0.0.0/8 2001:db8::1/128] Forwarded" {
		t.Error(got)
	}
	set = compiled(t, "rules: []")
	if got := fmt.Sprint(set.Server().Store, set.TrustedProxies(), set.Server().ClientHeader); got != "[]" {
		t.Error(got)
	}
}

func TestStores(t *testing.T) {
	for _, good := range []string{"memory", "redis://127.0.0.1", "rediss://a:6379/0", "unix:///run/redis.sock", "redis+cluster://a,b,c",
		"rediss+sentinel://a/mymaster", "valkey://a", "valkeys+cluster://a"} {
		if got := compiled(t, "server: {store: \""+good+"\"}\nrules: []").Server().Store; got != good {
			t.Errorf("%s became %s", good, got)
		}
	}
}

// TestPasswordsAreNotRepeated in an error, wherever a mistake stands beside one.
func TestPasswordsAreNotRepeated(t *testing.T) {
	const secret = "hunter2"
	for _, text := range []string{
		"store: http://u:hunter2@h",
		"store: redsi://:hunter2@h",
		"store: http://hunter2",
		"sotre: redis://u:hunter2@h",
		"server: {store: redis://u:hun/ter2@hunter2@h}\nx: 1",
		"store: [redis://u:hunter2@h]",
		"{store: redis://u:hunter2@h, x: 1, rules: []}",
		"{store: redis://h?sentinel_password=hunter2, x: 1, rules: []}",
		"server: {store: redis://u:hunter2@h, store: redis://u:hunter2@h}\nrules: []",
		"server: {store: redis://u:hunter2@h: x}\nrules: []",
		"store: redis://u:hunter2@h # \xff\n",
		"client_header: redis://u:hunter2@h",
		"trusted_proxies: redis://u:hunter2@h",
		"store: redis://u:hunter2@h" + strings.Repeat("h", bounds.Text) + "\nrules: []",
	} {
		_, err := rules.Parse("f", []byte(text))
		if err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "ter2") {
			t.Errorf("%.80q: %v", text, err)
		}
	}
}
