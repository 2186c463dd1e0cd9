package cli

import (
	"net/http"
	"strings"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/observe"
)

// A mistrust tells of peers that name their clients or users and are not trusted: all of them
// are then counted as one, which is what it looks like when a trusted proxy was forgotten.
type untrustedPeers struct {
	clients    *clientaddr.Extractor
	userHeader string // "": no rule reads one
	unix       bool   // the gateway is on a Unix socket
	counts     *observe.Server
	repeated   *repeatedLog
}

func (v *server) untrustedPeers(counts *observe.Server) *untrustedPeers {
	return &untrustedPeers{clients: v.setup.clients, userHeader: http.CanonicalHeaderKey(v.flags.userHeader),
		unix: strings.HasPrefix(v.flags.gateway.addr, "unix:"), counts: counts, repeated: v.repeated}
}

// before looks at requests before they are handled.
func (m *untrustedPeers) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.look(r)
		next.ServeHTTP(w, r)
	})
}

func (m *untrustedPeers) look(r *http.Request) {
	client := r.Header[m.clients.Header()] != nil
	user := m.userHeader != "" && r.Header[m.userHeader] != nil
	if !client && !user && !m.unix || m.clients.TrustsPeer(r) {
		return
	}
	if m.unix {
		m.counts.Untrusted(observe.UnixPeer)
		m.repeated.warn("the gateway is on a Unix socket, and its peers are not trusted: all requests are counted as of one client without an address; --trusted-proxies unix believes what they say")
		return
	}
	if client {
		m.counts.Untrusted(observe.ClientHeader)
		m.repeated.warn("a peer that is not trusted says who its client is: it is not believed; if it is a proxy of yours, add it to --trusted-proxies, or all its clients are counted as one",
			"peer", r.RemoteAddr, "header", m.clients.Header())
	}
	if user {
		m.counts.Untrusted(observe.UserHeader)
		m.repeated.warn("a peer that is not trusted says who the user is: it is not believed; if it is a proxy of yours, add it to --trusted-proxies, or all users are counted as one",
			"peer", r.RemoteAddr, "header", m.userHeader)
	}
}
