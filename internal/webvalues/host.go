package webvalues

import (
	"net/http"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/pathform"
)

// Host is the host of a request, in the form of pathform.Host. The server has already moved the
// host of an absolute target to r.Host.
//
// An empty host is refused, because a service replaces it by its own name. Only HTTP/1.0 may omit
// it. So is an IPv6 address without brackets: a service may read its last part as the port.
func Host(r *http.Request) (host string, err error) {
	if r.Host == "" && !r.ProtoAtLeast(1, 1) {
		return "", nil
	}
	host, err = pathform.Host(r.Host)
	if err == nil && r.Host[0] != '[' && strings.IndexByte(host, ':') >= 0 {
		return "", &weir.InputError{Field: "host", Given: r.Host, Allowed: "an IPv6 address in brackets"}
	}
	return host, err
}
