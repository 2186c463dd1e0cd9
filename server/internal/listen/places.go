package listen

import (
	"net"
	"net/netip"
	"sync"

	"github.com/weirproject/weir/internal/netaddr"
)

// wholeClient is the prefix of IPv6 that is one client: its provider gives it no less.
const wholeClient = 64

// A refusal is why a connection has no place; "" means that it has one.
type refusal string

const (
	full  refusal = "connection limit reached: new connections are closed"
	share refusal = "one address has its share of the connections: its further connections are closed"
)

// places are the connections that a listener may hold. They are divided so that one client cannot hold all of them: a
// client is an address of IPv4, or a network of IPv6.
type places struct {
	most   int                   // 0: no limit
	share  int                   // of one client; 0: no limit
	exempt func(netip.Addr) bool // clients without a share; nil: none

	mu   sync.Mutex
	open int
	held map[netip.Prefix]int
}

// take takes a place, which give gives back. A client without an address is on a Unix socket, where
// the file's mode says who may connect.
func (p *places) take(client netip.Addr) refusal {
	who, counts := p.counted(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.most > 0 && p.open >= p.most:
		return full
	case counts && p.held[who] >= p.share:
		return share
	}
	p.open++
	if counts {
		p.held[who]++
	}
	return ""
}

func (p *places) give(client netip.Addr) {
	who, counts := p.counted(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	if !counts {
		return
	}
	if p.held[who]--; p.held[who] == 0 {
		delete(p.held, who)
	}
}

// counted returns the client that an address belongs to, and whether its places are counted.
func (p *places) counted(client netip.Addr) (netip.Prefix, bool) {
	if p.share == 0 || !client.IsValid() || p.exempt != nil && p.exempt(client) {
		return netip.Prefix{}, false
	}
	bits := client.BitLen()
	if client.Is6() {
		bits = wholeClient
	}
	who, err := client.Prefix(bits)
	return who, err == nil
}

// sourceOf returns the address of a connection's client; the zero Addr on a Unix socket.
func sourceOf(conn net.Conn) netip.Addr {
	if peer, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return netaddr.Plain(peer.AddrPort().Addr())
	}
	return netip.Addr{}
}
