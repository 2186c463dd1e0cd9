package cli

import (
	"net/http"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/console"
	"github.com/weirproject/weir/server/internal/web"
)

// An address may try maxLogins tokens in any minute. Beyond maxLoginAddresses in one minute, new addresses share
// that number.
const (
	maxLogins         = 10
	maxLoginAddresses = 10_000
)

// openConsole returns the handler of the console.
func (v *server) openConsole(access *web.Access) (http.Handler, error) {
	store := memstore.New(memstore.WithMaxKeys(maxLoginAddresses))
	logins, err := weir.New(store, "console-login", weir.SlidingLog{Limit: maxLogins, Window: time.Minute})
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New(logins, v.client, nil)
	c := console.Config{Access: access, Ledger: v.engine.Book != nil, LimitLogins: limit, Log: v.log}
	return console.New(c), err
}

// client is the key of a request's client.
func (v *server) client(r *http.Request) (string, error) {
	address, ok := v.engine.Clients.Of(r)
	if !ok {
		return "", httplimit.ErrMissing // a peer on a Unix socket
	}
	return clientaddr.Mask{}.Key(address), nil
}
