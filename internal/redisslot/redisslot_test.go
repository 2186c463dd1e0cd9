package redisslot

import (
	"math/rand/v2"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// TestOf compares with Redis' own CLUSTER KEYSLOT: odd braces, and random keys of few
// letters, so that braces come in every order.
func TestOf(t *testing.T) {
	server := redistest.Start(t, "--cluster-enabled", "yes")
	keys := []string{
		"", "a", "123456789", "{a}", "{}", "{}a", "a{}b", "{a}{b}", "{{a}}", "}{a}", "a}b{c}d", "{a", "a}", "{", "}",
		"{}{a}", "foo{bar}{zap}", "foo{{bar}}zap", "\x00\xff{\x00}\xff", "weir:login:l:{ip:203.0.113.7}",
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		key := make([]byte, random.IntN(12))
		for i := range key {
			key[i] = "{}{}ab\x00\xff"[random.IntN(8)]
		}
		keys = append(keys, string(key))
	}
	for _, key := range keys {
		want := server.Do("CLUSTER", "KEYSLOT", key).(int64)
		if got := int64(Of(key)); got != want {
			t.Errorf("Of(%q) = %d, Redis says %d", key, got, want)
		}
	}
}
