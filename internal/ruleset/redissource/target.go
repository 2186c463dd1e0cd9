package redissource

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/weirproject/weir/rules"
)

// groups has the group of each type; the best match of a group applies. All GLOBAL rules match all
// requests, so they are in no group: each applies.
var groups = map[string]string{global: "", service: "redis-service", interfac: "redis-interface", ip: "redis-ip",
	user: "redis-user"}

// applies sets the match and the key of a rule.
func (h *Hash) applies() {
	h.Rule.Group = groups[h.kind]
	switch h.kind {
	case global:
		if h.target != anyTarget && folded(h.target) != global {
			h.wrong("limitTarget", "with limitType GLOBAL *, GLOBAL or no such field")
		}
		h.target = anyTarget
	case service:
		h.Rule.Match.Service = []string{h.target}
		h.Rule.Key = each(h.target, "service")
	case interfac:
		h.path()
	case ip:
		h.address()
	case user:
		h.Rule.Match.User = []string{h.target}
		h.Rule.Key = []string{"user"}
		h.Rule.OnMissing = rules.Skip
	}
}

// each returns the key of a rule that may have any target, so that each is counted separately.
func each(target string, components ...string) []string {
	if target != anyTarget {
		return nil
	}
	return components
}

// path reads service:/path, /path or *.
func (h *Hash) path() {
	name, path := "", h.target
	if i := strings.Index(h.target, ":/"); i >= 0 && h.target[0] != '/' {
		name, path = h.target[:i], h.target[i+1:]
		h.Rule.Match.Service = []string{name}
	}
	switch {
	case h.target == anyTarget:
		h.Rule.Key = []string{"service", "endpoint"}
	case path == "" || path[0] != '/' || strings.HasPrefix(h.target, ":"):
		h.wrong("limitTarget", "with limitType INTERFACE service:/path, /path or *; "+
			"a path may have * for a segment and ** at its end")
	default:
		h.Rule.Match.Path = path
	}
}

// address reads an address, a network or *.
func (h *Hash) address() {
	h.Rule.Key = []string{"client.ip"}
	h.Rule.OnMissing = rules.Skip
	if h.target == anyTarget {
		return
	}
	prefix, err := netip.ParsePrefix(h.target)
	if address, alone := netip.ParseAddr(h.target); alone == nil && address.Zone() == "" {
		address = address.Unmap()
		prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
	}
	if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
		h.wrong("limitTarget", "with limitType IP an address such as 192.0.2.7, a network such as 192.0.2.0/24 or "+
			"2001:db8::/32 without bits behind its length, or *")
		return
	}
	if prefix.Addr().Is6() && prefix.Bits() > 64 { // within one /64 all addresses would share a key
		h.Rule.Key = []string{"client.ip v6/128"}
	}
	h.Rule.Match.Client = []string{prefix.String()}
	h.target = prefix.String() // one spelling for each network
}

const maxNameLength = 128

// nameOf returns the name of a hash's rule: the key without the prefix, or if that is not a valid
// name, one derived from it.
func nameOf(suffix string) string {
	plain := make([]byte, 0, maxNameLength)
	for _, c := range suffix {
		if len(plain) == maxNameLength {
			break
		}
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			plain = append(plain, byte(c))
		} else {
			plain = append(plain, '_')
		}
	}
	if string(plain) == suffix && suffix != "" {
		return suffix
	}
	sum := sha256.Sum256([]byte(suffix))
	mark := "-" + hex.EncodeToString(sum[:8])
	return string(plain[:min(len(plain), maxNameLength-len(mark))]) + mark
}
