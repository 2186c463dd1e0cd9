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

// target sets the match and the key of a rule.
func (r *reader) target(rec *record) {
	rec.spec.Group = groups[rec.kind]
	switch rec.kind {
	case global:
		if rec.target != anyTarget && folded(rec.target) != global {
			r.wrong("limitTarget", "with limitType GLOBAL *, GLOBAL or no such field")
		}
		rec.target = anyTarget
	case service:
		rec.spec.Match.Service = []string{rec.target}
		rec.spec.Key = each(rec.target, "service")
	case interfac:
		r.path(rec)
	case ip:
		r.address(rec)
	case user:
		rec.spec.Match.User = []string{rec.target}
		rec.spec.Key = []string{"user"}
		rec.spec.OnMissing = rules.Skip
	}
}

// each returns the key of a rule whose target may be any, so that each is counted by itself.
func each(target string, components ...string) []string {
	if target != anyTarget {
		return nil
	}
	return components
}

// path reads service:/path, /path or *.
func (r *reader) path(rec *record) {
	name, path := "", rec.target
	if i := strings.Index(rec.target, ":/"); i >= 0 && rec.target[0] != '/' {
		name, path = rec.target[:i], rec.target[i+1:]
		rec.spec.Match.Service = []string{name}
	}
	switch {
	case rec.target == anyTarget:
		rec.spec.Key = []string{"service", "endpoint"}
	case path == "" || path[0] != '/' || strings.HasPrefix(rec.target, ":"):
		r.wrong("limitTarget", "with limitType INTERFACE service:/path, /path or *; "+
			"a path may have * for a segment and ** at its end")
	default:
		rec.spec.Match.Path = path
	}
}

// address reads an address, a network or *.
func (r *reader) address(rec *record) {
	rec.spec.Key = []string{"client.ip"}
	rec.spec.OnMissing = rules.Skip
	if rec.target == anyTarget {
		return
	}
	prefix, err := netip.ParsePrefix(rec.target)
	if address, alone := netip.ParseAddr(rec.target); alone == nil && address.Zone() == "" {
		address = address.Unmap()
		prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
	}
	if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
		r.wrong("limitTarget", "with limitType IP an address such as 192.0.2.7, a network such as 192.0.2.0/24 or "+
			"2001:db8::/32 without bits behind its length, or *")
		return
	}
	if prefix.Addr().Is6() && prefix.Bits() > 64 { // within one /64 all addresses would share a key
		rec.spec.Key = []string{"client.ip v6/128"}
	}
	rec.spec.Match.Client = []string{prefix.String()}
	rec.target = prefix.String() // one spelling for each network
}

const longestName = 128

// nameOf returns the name of a hash's rule: the key without the prefix, or if that is not a valid
// name, one derived from it.
func nameOf(suffix string) string {
	plain := make([]byte, 0, longestName)
	for _, c := range suffix {
		if len(plain) == longestName {
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
	return string(plain[:min(len(plain), longestName-len(mark))]) + mark
}
