// Package console serves the operators' web pages below /console. They are static files, which read and change
// everything through the admin API in JSON: curl can read every value of a page. Besides them the package has the
// login at /v1/admin/session, which turns a token of the admin API into a cookie.
package console

import (
	"log/slog"
	"net/http"

	"github.com/weirproject/weir/server/internal/web"
)

// The paths that New's handler serves.
const (
	Path        = "/console"
	SessionPath = "/v1/admin/session"
)

// A Config has the parts of a server that the console needs.
type Config struct {
	Access *web.Access // of the admin API; nil: nobody has access, and there is no login
	Ledger bool        // rules and exceptions can be changed
	// LimitLogins wraps the handler of logins; it refuses those beyond a limit.
	LimitLogins func(http.Handler) http.Handler
	Log         *slog.Logger // logs attempts with unknown tokens
}

// New makes the handler of Path, of all paths below it, and of SessionPath if there is a login.
func New(c Config) http.Handler {
	mux := http.NewServeMux()
	pages := newPages()
	mux.Handle(Path, pages)
	mux.Handle(Path+"/", pages)
	if c.Access == nil {
		return mux
	}
	mux.Handle(SessionPath, sessions(c))
	return c.Access.Guard(mux)
}
