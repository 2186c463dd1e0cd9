package ruleimport

import (
	"slices"
	"strings"
)

// nginx looks for a location again after an internal redirect: try_files with a fallback, error_page, index, rewrite.
// A request counts once: the first location with limits on its way decides.

// redirects follows the internal redirects of a server, and lists redirects without an equal.
func (n *nginxConf) redirects(s *nginxServer) {
	uniform := s.uniform()
	n.before(s, s.at, uniform)
	if uniform {
		return
	}
	reached := make(map[*nginxPlace]*nginxPlace)
	for _, p := range slices.Concat(s.places, s.named) {
		if target := n.tryFiles(p); target != nil {
			reached[p] = target
		}
		n.byStatus(p)
		n.byIndex(p)
	}
	for p, target := range reached {
		limits := p.reach(target)
		for _, l := range limits {
			p.limits, p.statuses = append(p.limits, l), append(p.statuses, target.status(l))
		}
	}
}

// uniform reports whether all places of a server have the same limits: no redirect changes what limits a request.
func (s *nginxServer) uniform() bool {
	all := slices.Concat(s.places, s.named)
	for _, p := range all {
		if !slices.Equal(p.limits, all[0].limits) {
			return false
		}
	}
	return true
}

// limited reports whether a place of a server has a limit.
func (s *nginxServer) limited() bool {
	return slices.ContainsFunc(slices.Concat(s.places, s.named), func(p *nginxPlace) bool { return len(p.limits) > 0 })
}

// target is the place of a URI; ok is false if the URI depends on the request.
func (s *nginxServer) target(uri string) (p *nginxPlace, ok bool) {
	if strings.HasPrefix(uri, "@") {
		i := slices.IndexFunc(s.named, func(p *nginxPlace) bool { return p.text == uri })
		if i < 0 {
			return nil, true
		}
		s.named[i].referred = true
		return s.named[i], true
	}
	uri, _, _ = strings.Cut(uri, "?")
	uri = strings.TrimSuffix(strings.TrimSuffix(uri, "$args"), "$is_args")
	if strings.Contains(uri, "$") {
		return nil, false
	}
	for _, one := range s.places {
		if one.takes(uri) && (p == nil || one.beats(p)) {
			p = one
		}
	}
	return p, true
}

// takes reports whether a path is one of the place, unless another place is preferred.
func (p *nginxPlace) takes(path string) bool {
	switch p.kind {
	case exactPlace:
		return path == p.text
	case regexPlace:
		return p.regex.MatchString(path)
	}
	return strings.HasPrefix(path, p.text)
}

// reach is what limits requests that are redirected from one place to another, and were not limited before: of
// requests, and of connections.
func (p *nginxPlace) reach(t *nginxPlace) (limits []nginxLimit) {
	if t == nil || t == p || p.ends || t.ends {
		return nil
	}
	var has [2]bool
	for i := range p.limits {
		has[p.limits[i].kind()] = true
	}
	for _, l := range t.limits {
		if !has[l.kind()] {
			limits = append(limits, l)
		}
	}
	return limits
}

// kind is 0 for requests, 1 for connections.
func (l *nginxLimit) kind() int {
	if l.zone.rate == 0 {
		return 1
	}
	return 0
}

// maxRedirects is the most internal redirects of a request, as in nginx.
const maxRedirects = 10

// tryFiles is the place with the limits for requests without a file; nil without one.
func (n *nginxConf) tryFiles(p *nginxPlace) *nginxPlace {
	at := p
	for range maxRedirects {
		d := at.own("try_files")
		if d == nil || len(d.args) < 2 || strings.HasPrefix(d.args[len(d.args)-1], "=") {
			return nil
		}
		fallback := d.args[len(d.args)-1]
		target, known := p.server.target(fallback)
		if !known && p.server.limited() {
			n.Lacks(d.file, d.line, "see which location requests without a file get to, and what limits them there",
				"try_files with the fallback %.80s, which depends on the request", fallback)
		}
		if len(p.reach(target)) > 0 {
			n.Lacks(d.file, d.line, "exclude the files by not in match, if they are many",
				"try_files: files cannot be told apart from requests that get to %.80s, and come under its limits",
				fallback)
			return target
		}
		if target == nil {
			return nil
		}
		at = target
	}
	return nil
}

// own is the last directive of a name in the block of a place.
func (p *nginxPlace) own(name string) (found *directive) {
	for _, d := range p.at.block {
		if d.name == name {
			found = d
		}
	}
	return found
}

// byStatus lists error_page that leads into limits.
func (n *nginxConf) byStatus(p *nginxPlace) {
	for _, d := range p.errors {
		if len(d.args) < 2 {
			continue
		}
		uri := d.args[len(d.args)-1]
		target, known := p.server.target(strings.TrimPrefix(uri, "="))
		if !known && p.server.limited() || len(p.reach(target)) > 0 {
			n.Lacks(d.file, d.line, "write a rule with count_if for these statuses, if they are to be limited",
				"error_page %.80s: only requests that fail come under the limits of that location",
				strings.Join(d.args, " "))
		}
	}
}

// byIndex lists index files that have their own limits.
func (n *nginxConf) byIndex(p *nginxPlace) {
	if p.index == nil || p.kind != prefixPlace || p.own("try_files") != nil {
		return
	}
	for _, name := range p.index.args {
		target, known := p.server.target(strings.TrimSuffix(p.text, "/") + "/" + strings.TrimPrefix(name, "/"))
		if known && len(p.reach(target)) > 0 {
			n.Lacks(p.index.file, p.index.line, "write a rule for the paths of directories, such as /",
				"index %.80s: a request of a directory comes under the limits of that file's location", name)
			return
		}
	}
}

// before lists what ends a request before its limits, or sends it to another location.
func (n *nginxConf) before(s *nginxServer, block *directive, uniform bool) {
	if !s.limited() {
		return
	}
	for _, d := range block.block {
		ends, moves := false, false
		switch d.name {
		case "location":
			n.before(s, d, uniform)
		case "rewrite":
			ends, moves = rewrites(d)
		case "if":
			for _, inner := range d.block {
				e, m := rewrites(inner)
				ends, moves = ends || e || inner.name == "return", moves || m
			}
		}
		if ends || moves && !uniform {
			n.Lacks(d.file, d.line, "see whether requests meet other limits, or none, because of it", "%s %.80s",
				d.name, strings.Join(d.args, " "))
		}
	}
}

// rewrites reports whether a rewrite answers the request, or changes its path.
func rewrites(d *directive) (ends, moves bool) {
	if d.name != "rewrite" || len(d.args) < 2 {
		return false, false
	}
	to, flag := d.args[1], strings.Join(d.args[2:], " ")
	ends = flag == "redirect" || flag == "permanent" || strings.HasPrefix(to, "http://") ||
		strings.HasPrefix(to, "https://") || strings.HasPrefix(to, "$scheme")
	return ends, !ends
}
