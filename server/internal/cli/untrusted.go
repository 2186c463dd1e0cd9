package cli

import (
	"net/http"
	"strings"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/internal/servermetrics"
)

// An untrustedPeers warns of peers that send a client or user header and are not trusted. If such a
// peer is a proxy that is missing in --trusted-proxies, all its clients are counted as one.
type untrustedPeers struct {
	clients    *clientaddr.Extractor
	userHeader string // "": none is read
	unix       bool   // the gateway is on a Unix socket
	counts     *servermetrics.Server
	repeated   *repeatedLog
}

func (v *server) untrustedPeers(counts *servermetrics.Server) *untrustedPeers {
	return &untrustedPeers{
		clients:    v.engine.Clients,
		userHeader: http.CanonicalHeaderKey(v.engine.UserHeader),
		unix:       strings.HasPrefix(v.gateway.Listen, "unix:"),
		counts:     counts,
		repeated:   v.repeated,
	}
}

// look looks at a request of such a peer.
func (m *untrustedPeers) look(r *http.Request) {
	client := r.Header[m.clients.Header()] != nil
	user := m.userHeader != "" && r.Header[m.userHeader] != nil
	if !client && !user && !m.unix {
		return
	}
	if m.unix {
		m.counts.Untrusted("unix_socket")
		m.repeated.warn("gateway on a Unix socket whose peers are not trusted: all requests are counted as " +
			"one client without an address; --trusted-proxies unix trusts their client header")
		return
	}
	if client {
		m.counts.Untrusted("client_header")
		m.repeated.warn("client header of an untrusted peer ignored; if the peer is your proxy, add it to "+
			"--trusted-proxies, or all its clients are counted as one",
			"peer", r.RemoteAddr, "header", m.clients.Header())
	}
	if user {
		m.counts.Untrusted("user_header")
		m.repeated.warn("user header of an untrusted peer ignored; if the peer is your proxy, add it to "+
			"--trusted-proxies, or all users are counted as one",
			"peer", r.RemoteAddr, "header", m.userHeader)
	}
}
