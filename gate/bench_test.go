package gate_test

import (
	"net/netip"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
)

// BenchmarkDecide is a request under one rule by address, and under four at once.
func BenchmarkDecide(b *testing.B) {
	for name, text := range map[string]string{
		"none":      `rules: []`,
		"ip":        `rules: [{name: ip, key: [client.ip], limit: 1000000/1s}]`,
		"percent":   `rules: [{name: ip, key: [client.ip], limit: 1000000/1s, enforce_percent: 50}]`,
		"ban":       `rules: [{name: ip, key: [client.ip], limit: 1000000/1s, ban: {after: 5 refusals within 1m, for: 10m}}]`,
		"candidate": `rules: [{name: ip, key: [client.ip], limit: 1000000/1s, candidate: {limit: 900000/1s}}]`,
		"shadow":    `rules: [{name: ip, key: [client.ip], limit: 1000000/1s}, {name: tried, mode: shadow, key: [client.ip], limit: 1000000/1s}]`,
		"four": `
rules:
  - {name: site, limit: 1000000/1s}
  - {name: service, key: [service], limit: 1000000/1s}
  - {name: interface, key: [method, route], limit: 1000000/1s}
  - {name: ip, key: [client.ip], limit: 1000000/1s}
`,
	} {
		b.Run(name, func(b *testing.B) {
			g := open(b, memstore.New(), text)
			request := from("192.0.2.1")
			request.Service, request.Route = "mail", "/"
			addr := netip.MustParseAddr("192.0.2.0").As4()
			var v gate.Verdict
			for i := 0; b.Loop(); i++ {
				addr[3] = byte(i)
				request.Client = netip.AddrFrom4(addr)
				if err := g.Decide(b.Context(), request, gate.Once, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
