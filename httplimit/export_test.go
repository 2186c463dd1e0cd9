package httplimit

import (
	"net/http"

	"github.com/weirproject/weir/rules"
)

// Attributes exports attributes, for comparison with net/http; nil if the request is refused.
func Attributes(r *http.Request) rules.Attributes {
	a := attributesOf(r, nil)
	if a.Check() != nil {
		return nil
	}
	return &a
}

// HostOf exports hostOf.
func HostOf(r *http.Request) (string, error) { return hostOf(r) }
