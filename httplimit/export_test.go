package httplimit

import (
	"net/http"

	"github.com/weirproject/weir/rules"
)

// Attributes is what rules read of a request by name, for tests beside net/http; nil where
// it is refused.
func Attributes(r *http.Request) rules.Attributes {
	a := &attributes{request: r}
	if a.check() != nil {
		return nil
	}
	return a
}

// HostOf is hostOf for tests.
func HostOf(r *http.Request) (string, error) { return hostOf(r) }

func TitleOf(language string, status int) string { return titleOf(language, status) }
