package httplimit

import (
	"net/http"

	"github.com/weirproject/weir/rules"
)

// Attributes exports attributes, for comparison with net/http; nil if the request is refused.
func Attributes(r *http.Request) rules.Attributes {
	a := &attributes{request: r}
	if a.check() != nil {
		return nil
	}
	return a
}

// HostOf exports hostOf.
func HostOf(r *http.Request) (string, error) { return hostOf(r) }
