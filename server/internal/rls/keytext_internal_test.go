package rls

import (
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirproject/weir/internal/keytext"
)

// TestKeyOfASentLimitIsReadable: people are shown it as the keys of rules.
func TestKeyOfASentLimitIsReadable(t *testing.T) {
	key := overrideKey("edge", []*common.RateLimitDescriptor_Entry{{Key: "a", Value: "1"}, {Key: "b"}})
	if got := keytext.Described(key); got != "edge: a=1, b=" {
		t.Errorf("%q is shown as %q", key, got)
	}
}
