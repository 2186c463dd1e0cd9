package ruleimport

import (
	"regexp"
	"slices"
	"strings"

	"github.com/weirproject/weir/rules"
)

// An nginxPlace is a location, or the part of a server outside locations.
type nginxPlace struct {
	at     *directive
	server *nginxServer
	kind   placeKind
	text   string
	regex  *regexp.Regexp
	first  bool         // ^~: a prefix that regular expressions do not take from
	ends   bool         // limits are not reached
	errors []*directive // error_page
	index  *directive
	// referred is that a redirect leads to a named place.
	referred bool
	order    int
	limits   []nginxLimit
	// statuses are of what each limit refuses.
	statuses []int
}

// status is the status of a limit's refusals.
func (p *nginxPlace) status(l nginxLimit) int { return p.statuses[slices.Index(p.limits, l)] }

type placeKind uint8

const (
	prefixPlace placeKind = iota
	exactPlace
	regexPlace
	namedPlace
)

// location reads location [=|~|~*|^~] TEXT.
func (n *nginxConf) location(d *directive, s *nginxServer) (p *nginxPlace, ok bool) {
	p = &nginxPlace{at: d, server: s}
	sign := ""
	switch len(d.args) {
	case 1:
		p.text = d.args[0]
		for _, word := range []string{"^~", "~*", "~", "="} {
			if rest, glued := strings.CutPrefix(p.text, word); glued {
				sign, p.text = word, rest
				break
			}
		}
	case 2:
		sign, p.text = d.args[0], d.args[1]
	}
	switch {
	case strings.HasPrefix(p.text, "@"):
		p.kind = namedPlace
	case sign == "=":
		p.kind = exactPlace
	case sign == "^~":
		p.first = true
	case sign == "~" || sign == "~*":
		p.kind = regexPlace
		expression := "(?s:.*)(?:" + p.text + ")(?s:.*)"
		if rest, anchored := strings.CutPrefix(p.text, "^"); anchored && !strings.Contains(rest, "|") {
			expression = "(?:" + rest + ")(?s:.*)"
		}
		if sign == "~*" {
			expression = "(?i)" + expression
		}
		regex, err := regexp.Compile("^(?:" + expression + ")$")
		if err != nil {
			n.Lacks(d.file, d.line, "write it in RE2's syntax; its limits are not imported", "location %s", p.text)
			return nil, false
		}
		p.text, p.regex = expression, regex
		return p, true
	case sign != "" || p.text == "":
		n.Wrong(d.file, d.line, "location has %.80q; allowed: a path, after =, ~, ~* or ^~ perhaps", d.args)
		return nil, false
	}
	return p, true
}

// all reports whether the place takes every path that no other takes.
func (p *nginxPlace) all() bool { return p.kind == prefixPlace && (p.text == "" || p.text == "/") }

// expression is a regular expression for the paths of a place.
func (p *nginxPlace) expression() string {
	switch p.kind {
	case regexPlace:
		return p.text
	case exactPlace:
		return regexp.QuoteMeta(p.text)
	}
	return regexp.QuoteMeta(p.text) + ".*"
}

// beats reports whether nginx prefers the place to another one for some path of both.
func (p *nginxPlace) beats(other *nginxPlace) bool {
	switch {
	case p == other || p.server != other.server || other.kind == exactPlace:
		return false
	case other.kind == regexPlace && p.kind == exactPlace:
		return other.regex.MatchString(p.text)
	case other.kind == regexPlace && p.kind == regexPlace:
		return p.order < other.order
	case other.kind == regexPlace:
		return p.first
	case p.kind == regexPlace:
		return !other.first
	}
	return strings.HasPrefix(p.text, other.text) && (p.kind == exactPlace || len(p.text) > len(other.text))
}

// A use is a limit with the places that it holds in.
type use struct {
	limit  nginxLimit
	places []*nginxPlace
}

// emit writes the rules: one for each limit with the same numbers.
func (n *nginxConf) emit() {
	var uses []*use
	for _, p := range n.places {
		if p.ends || p.own("internal") != nil || !p.server.fallback && len(p.server.names) == 0 {
			for _, l := range p.limits {
				l.zone.used = true
			}
			continue
		}
		for _, l := range p.limits {
			i := slices.IndexFunc(uses, func(u *use) bool { return u.limit == l })
			if i < 0 {
				i = len(uses)
				uses = append(uses, &use{limit: l})
			}
			uses[i].places = append(uses[i].places, p)
		}
	}
	for _, s := range n.servers {
		for _, p := range s.named {
			for _, l := range p.limits {
				l.zone.used = l.zone.used || p.referred
			}
		}
	}
	count := make(map[*nginxZone]int)
	for _, u := range uses {
		key, ok := n.key(u.limit.zone)
		first := !u.limit.zone.used
		u.limit.zone.used = true
		if !ok {
			if first {
				d := u.limit.zone.at
				n.Lacks(d.file, d.line, "write a rule by hand; nothing limits by this zone now", "key %.80s",
					u.limit.zone.key)
			}
			continue
		}
		for _, places := range n.apart(u.places, key.perServer) {
			if count[u.limit.zone]++; count[u.limit.zone] > 1 && !key.perServer {
				at := places[0].at
				n.Lacks(at.file, at.line, "make the numbers or the locations equal if one count matters",
					"zone %s is counted here apart from its other places", u.limit.zone.name)
			}
			n.rule(u.limit, places, key)
		}
	}
}

// apart splits places that one match cannot express: places of several servers, unless each is there as a whole; and
// places within an excluded place.
func (n *nginxConf) apart(places []*nginxPlace, perServer bool) (list [][]*nginxPlace) {
	if len(places) == len(n.places) && (!perServer || len(n.servers) == 1) {
		return [][]*nginxPlace{places}
	}
	fallback, parts := false, false
	for _, s := range n.servers {
		some := ofServer(places, s)
		fallback = fallback || s.fallback && len(some) > 0
		parts = parts || len(some) > 0 && len(some) < len(s.places)
	}
	if perServer || fallback && parts {
		for _, s := range n.servers {
			if some := ofServer(places, s); len(some) > 0 {
				list = append(list, n.within(some)...)
			}
		}
		return list
	}
	return n.within(places)
}

func ofServer(places []*nginxPlace, s *nginxServer) (list []*nginxPlace) {
	for _, p := range places {
		if p.server == s {
			list = append(list, p)
		}
	}
	return list
}

func (n *nginxConf) within(places []*nginxPlace) (list [][]*nginxPlace) {
	for len(places) > 0 {
		var rest []*nginxPlace
		for again := true; again; {
			again = false
			out := excluded(places)
			for i, p := range places {
				if slices.ContainsFunc(out, p.beats) {
					rest = append(rest, p)
					places = slices.Delete(slices.Clone(places), i, i+1)
					again = true
					break
				}
			}
		}
		list = append(list, places)
		places = rest
	}
	return list
}

// excluded are the places that take paths from these.
func excluded(places []*nginxPlace) (list []*nginxPlace) {
	for _, p := range places {
		for _, other := range p.server.places {
			if other.beats(p) && !slices.Contains(places, other) && !slices.Contains(list, other) {
				list = append(list, other)
			}
		}
	}
	return list
}

// tooMany is the status of refusals without another one in their rule.
const tooMany = 429

// rule writes a rule for places.
func (n *nginxConf) rule(l nginxLimit, places []*nginxPlace, key *nginxKey) {
	at := places[0].at
	spec := rules.Spec{Name: l.zone.name, Description: Origin(at.file, max(1, at.line)), Key: key.components,
		Limit: []string{l.text()}, OnMissing: key.onMissing}
	if status := places[0].status(l); status != tooMany {
		spec.Response.Status = status
	}
	for _, p := range places[1:] {
		if status := p.status(l); status != places[0].status(l) {
			n.Lacks(p.at.file, p.at.line, "use one status for the whole zone", "status %d here, of zone %s with %d",
				status, l.zone.name, places[0].status(l))
		}
	}
	if l.dry {
		spec.Mode = rules.Shadow
	}
	if len(places) < len(n.places) {
		spec.Match = n.match(places)
	}
	key.exempt.narrow(&spec)
	n.Add(at.file, at.line, spec)
}

// match is the condition for places.
func (n *nginxConf) match(places []*nginxPlace) (m rules.Match) {
	out := excluded(places)
	var alternatives []rules.Match
	for _, s := range n.servers {
		some := ofServer(places, s)
		if len(some) == 0 {
			continue
		}
		one := rules.Match{}
		if !s.fallback {
			one.Host = s.names
		}
		if len(some) < len(s.places) {
			paths(&one, some)
			if expressions := expressionsOf(ofServer(out, s)); len(expressions) > 0 {
				m.Not = append(m.Not, rules.Match{Host: one.Host, Regex: rules.Expressions{Path: expressions}})
			}
		}
		if hosts := n.otherHosts(s, places); len(hosts) > 0 {
			m.Not = append(m.Not, rules.Match{Host: hosts})
		}
		alternatives = append(alternatives, one)
	}
	if len(alternatives) == 1 {
		not := m.Not
		m = alternatives[0]
		m.Not = not
		return m
	}
	m.Any = alternatives
	return m
}

// paths adds the paths of places to a match.
func paths(m *rules.Match, places []*nginxPlace) {
	switch {
	case slices.ContainsFunc(places, (*nginxPlace).all):
	case len(places) == 1 && places[0].kind == exactPlace && PlainPath.MatchString(places[0].text):
		m.Path = places[0].text
	default:
		m.Regex.Path = expressionsOf(places)
	}
}

// PlainPath matches paths that are the same as a pattern of a rule.
var PlainPath = regexp.MustCompile(`^/[a-zA-Z0-9/._-]*$`)

func expressionsOf(places []*nginxPlace) (list []string) {
	for _, p := range places {
		list = append(list, p.expression())
	}
	return list
}

// otherHosts are hosts that a server does not get, because another one has their name: for the server of unknown hosts
// all of them, else hosts below its wildcards.
func (n *nginxConf) otherHosts(s *nginxServer, places []*nginxPlace) (hosts []string) {
	for _, other := range n.servers {
		if other == s || len(ofServer(places, other)) > 0 {
			continue
		}
		for _, name := range other.names {
			below := func(own string) bool {
				rest, wild := strings.CutPrefix(own, "*")
				return wild && len(name) > len(own) && strings.HasSuffix(name, rest)
			}
			if !slices.Contains(s.names, name) && (s.fallback || slices.ContainsFunc(s.names, below)) {
				hosts = append(hosts, name)
			}
		}
	}
	return hosts
}
