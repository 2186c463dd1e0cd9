package httplimit

import (
	"net/http"
	"testing"
	"time"

	"github.com/weirproject/weir/rules"
)

// Attributes exports attributes, for comparison with net/http; nil if the request is refused.
func Attributes(r *http.Request) rules.Attributes {
	var a attributes
	a.of(r, nil, nil)
	if a.Check() != nil {
		return nil
	}
	return &a
}

// SetBodyTime sets bodyTime during a test.
func SetBodyTime(t *testing.T, d time.Duration) {
	old := bodyTime
	bodyTime = d
	t.Cleanup(func() { bodyTime = old })
}
