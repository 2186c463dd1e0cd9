package ruleimport

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/rules"
)

// nginx reads files of nginx. A zone is one rule, for all places where it limits with the same numbers: the servers and
// locations that name it, in their own or inherited settings.
func nginx(j *Job) {
	var top []*directive
	for _, t := range j.Files {
		top = append(top, j.conf(t)...)
	}
	n := &nginxConf{Job: j, zones: make(map[string]*nginxZone), maps: make(map[string]*directive)}
	inside := top // a file of servers alone, as in sites-enabled
	if slices.ContainsFunc(top, func(d *directive) bool { return d.name == "http" }) {
		inside = nil
	}
	for _, d := range top {
		if d.name == "http" {
			inside = append(inside, d.block...)
		} else if d.name == "stream" || d.name == "mail" {
			n.blockLacks(d)
		}
	}
	if !j.Failed() {
		n.http(inside)
	}
}

// An nginxConf is the http block of all files.
type nginxConf struct {
	*Job
	zones   map[string]*nginxZone
	maps    map[string]*directive // map and geo, by their variable
	servers []*nginxServer
	places  []*nginxPlace // of all servers
}

// An nginxZone is what limits of one key share.
type nginxZone struct {
	at   *directive
	name string
	key  string
	rate int64 // thousandths of a request a second; 0: of limit_conn
	used bool
}

// An nginxLimit is a limit_req or limit_conn.
type nginxLimit struct {
	zone        *nginxZone
	burst       int64
	delay       int64 // requests of the burst that are not delayed
	connections int64
	dry         bool
}

// nginxSettings are the settings of a level; the next level inherits them.
type nginxSettings struct {
	limits [2][]nginxLimit // of requests, of connections
	status [2]int
	dry    [2]bool
	ends   bool         // a return comes before limits
	errors []*directive // error_page
	index  *directive
}

// An nginxServer is a server, and the places in it.
type nginxServer struct {
	at       *directive
	names    []string // hosts as in rules
	fallback bool     // it gets requests of unknown hosts
	places   []*nginxPlace
	named    []*nginxPlace // @NAME, where only redirects lead
}

// blockLacks lists limits in blocks that are not about HTTP.
func (n *nginxConf) blockLacks(d *directive) {
	for _, inner := range d.block {
		if strings.HasPrefix(inner.name, "limit_") {
			n.Lacks(inner.file, inner.line, "rules are about requests", "%s in %s", inner.name, d.name)
		}
		n.blockLacks(inner)
	}
}

// http reads the zones first, because limits may stand before them.
func (n *nginxConf) http(list []*directive) {
	for _, d := range list {
		switch d.name {
		case "limit_req_zone", "limit_conn_zone":
			n.zone(d)
		case "map", "geo":
			if len(d.args) > 0 {
				n.maps[d.args[len(d.args)-1]] = d
			}
		case "limit_zone":
			n.Wrong(d.file, d.line, "limit_zone is of nginx before 1.1.8; write limit_conn_zone")
		}
	}
	base := n.settings(list, &nginxSettings{status: [2]int{503, 503}})
	for _, d := range list {
		if d.name == "server" {
			n.server(d, base)
		}
	}
	if len(n.servers) == 0 {
		n.server(&directive{name: "server"}, base)
	}
	if len(n.problems) > 0 {
		return
	}
	n.realIP(list)
	n.fallbackServer()
	n.emit()
	for _, name := range sortedKeys(n.zones) {
		if z := n.zones[name]; !z.used {
			n.Lacks(z.at.file, z.at.line, "nothing: it limits nothing there either", "zone %s, which no limit uses",
				name)
		}
	}
}

// zone reads limit_req_zone KEY zone=NAME:SIZE rate=RATE, or limit_conn_zone KEY zone=NAME:SIZE.
func (n *nginxConf) zone(d *directive) {
	z := &nginxZone{at: d}
	for i, arg := range d.args {
		name, value, _ := strings.Cut(arg, "=")
		switch {
		case i == 0:
			z.key = arg
		case name == "zone":
			z.name, _, _ = strings.Cut(value, ":")
		case name == "rate" && d.name == "limit_req_zone":
			z.rate = n.rate(d, value)
		case arg == "sync": // which weir does by sharing a store
		default:
			n.Wrong(d.file, d.line, "%s has %.80q; allowed: a key, zone=NAME:SIZE, rate=NUMBERr/s or NUMBERr/m", d.name,
				arg)
		}
	}
	_, twice := n.zones[z.name]
	switch {
	case z.key == "" || z.name == "" || z.rate == 0 && d.name == "limit_req_zone":
		n.Wrong(d.file, d.line, "%s needs a key and zone=NAME:SIZE, and limit_req_zone a rate", d.name)
	case twice:
		n.Wrong(d.file, d.line, "zone %.80q is defined twice", z.name)
	}
	n.zones[z.name] = z
}

// maxRate is the largest rate, burst or number of connections that is read.
const maxRate = 1_000_000_000

// rate is in thousandths of a request a second, rounded down as nginx does.
func (n *nginxConf) rate(d *directive, text string) int64 {
	number, unit := text, int64(1)
	if rest, ok := strings.CutSuffix(text, "r/s"); ok {
		number = rest
	} else if rest, ok := strings.CutSuffix(text, "r/m"); ok {
		number, unit = rest, 60
	}
	rate, err := strconv.ParseInt(number, 10, 64)
	if err != nil || rate < 1 || rate > maxRate {
		n.Wrong(d.file, d.line, "rate is %.80q; allowed: a whole number from 1, then r/s or r/m", text)
		return 1
	}
	return rate * 1000 / unit
}

// settings are a block's own settings over inherited ones.
func (n *nginxConf) settings(block []*directive, outer *nginxSettings) *nginxSettings {
	s := *outer
	var own [2]bool
	ownErrors := false
	for _, d := range block {
		kind := 0
		if strings.HasPrefix(d.name, "limit_conn") {
			kind = 1
		}
		switch d.name {
		case "limit_req", "limit_conn":
			if !own[kind] {
				s.limits[kind], own[kind] = nil, true
			}
			if limit, ok := n.limit(d); ok {
				s.limits[kind] = append(s.limits[kind], limit)
			}
		case "limit_req_status", "limit_conn_status":
			s.status[kind] = int(n.count(d, strings.Join(d.args, " "), 400, 599))
		case "limit_req_dry_run", "limit_conn_dry_run":
			s.dry[kind] = len(d.args) == 1 && d.args[0] == "on"
		case "return":
			s.ends = true
		case "limit_req_log_level", "limit_conn_log_level":
			n.Lacks(d.file, d.line, "see --log-level and docs/howto/audit.md", "%s", d.name)
		case "limit_rate", "limit_rate_after":
			n.Lacks(d.file, d.line, "keep it in nginx: rules limit requests, not the speed of a response", "%s", d.name)
		case "error_page":
			if !ownErrors {
				s.errors, ownErrors = nil, true
			}
			s.errors = append(s.errors, d)
		case "index":
			s.index = d
		}
	}
	return &s
}

func (n *nginxConf) count(d *directive, text string, least, most int64) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || value < least || value > most {
		n.Wrong(d.file, d.line, "%s has %.80q; allowed: a whole number from %d to %d", d.name, text, least, most)
		return least
	}
	return value
}

// limit reads limit_req zone=NAME [burst=N] [nodelay|delay=N], or limit_conn NAME N.
func (n *nginxConf) limit(d *directive) (limit nginxLimit, ok bool) {
	name, nodelay := "", false
	for i, arg := range d.args {
		word, value, _ := strings.Cut(arg, "=")
		switch {
		case d.name == "limit_conn" && i == 0:
			name = arg
		case d.name == "limit_conn" && i == 1:
			limit.connections = n.count(d, arg, 1, 65535)
		case d.name == "limit_req" && word == "zone":
			name = value
		case d.name == "limit_req" && word == "burst":
			limit.burst = n.count(d, value, 1, maxRate)
		case d.name == "limit_req" && word == "delay":
			limit.delay = n.count(d, value, 1, maxRate)
		case d.name == "limit_req" && arg == "nodelay":
			nodelay = true
		default:
			n.Wrong(d.file, d.line, "%s has %.80q; allowed: zone=NAME burst=N nodelay delay=N, of limit_conn NAME N",
				d.name, arg)
		}
	}
	limit.zone = n.zones[name]
	switch {
	case limit.zone == nil:
		n.Lacks(d.file, d.line, "import the file with the zone too; nothing limits these requests now",
			"%s of zone %.80q, which is not defined", d.name, name)
		return limit, false
	case (limit.zone.rate == 0) != (d.name == "limit_conn"), d.name == "limit_conn" && limit.connections == 0:
		n.Wrong(d.file, d.line, "%s needs a zone of %s_zone, and limit_conn a number", d.name, d.name)
		return limit, false
	}
	if nodelay || limit.delay > limit.burst {
		limit.delay = limit.burst
	}
	return limit, true
}

// server reads a server and its locations.
func (n *nginxConf) server(d *directive, base *nginxSettings) {
	s := &nginxServer{at: d}
	for _, inner := range d.block {
		switch inner.name {
		case "server_name":
			for _, name := range inner.args {
				s.names = append(s.names, n.serverName(inner, name)...)
			}
		case "listen":
			s.fallback = s.fallback || slices.Contains(inner.args, "default_server") ||
				slices.Contains(inner.args, "default")
		}
	}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	n.servers = append(n.servers, s)
	own := n.settings(d.block, base)
	n.locations(s, d.block, own, "")
	if !slices.ContainsFunc(s.places, func(p *nginxPlace) bool { return p.kind == prefixPlace && p.text == "/" }) {
		n.place(&nginxPlace{at: d, server: s, kind: prefixPlace}, own)
		last := len(s.places) - 1
		s.places = slices.Insert(s.places[:last:last], 0, s.places[last]) // it is read first
	}
	n.redirects(s)
	n.places = append(n.places, s.places...)
}

// serverName is a name as the host of a rule.
func (n *nginxConf) serverName(d *directive, name string) []string {
	name = strings.ToLower(name)
	switch {
	case strings.HasPrefix(name, "~") || strings.HasSuffix(name, ".*"):
		n.Lacks(d.file, d.line, "write the names out", "server_name %.80s", name)
		return nil
	case name == "_" || name == "":
		return nil // no request has it
	case strings.HasPrefix(name, "."):
		return []string{name[1:], "*" + name}
	}
	return []string{name}
}

// locations reads the locations of a block; nested ones are prefixes of it.
func (n *nginxConf) locations(s *nginxServer, block []*directive, outer *nginxSettings, within string) {
	for _, d := range block {
		if d.name != "location" {
			continue
		}
		p, ok := n.location(d, s)
		if !ok {
			continue
		}
		own := n.settings(d.block, outer)
		if within != "" && p.kind == regexPlace {
			n.Lacks(d.file, d.line, "move it out of the location around it", "location %s within %s",
				strings.Join(d.args, " "), within)
			continue
		}
		n.place(p, own)
		inner := *own
		inner.ends = outer.ends // a return of a location is not inherited
		n.locations(s, d.block, &inner, strings.Join(d.args, " "))
	}
}

func (n *nginxConf) place(p *nginxPlace, s *nginxSettings) {
	p.ends, p.errors, p.index = s.ends, s.errors, s.index
	for kind, limits := range s.limits {
		for _, l := range limits {
			l.dry = s.dry[kind]
			p.limits = append(p.limits, l)
			p.statuses = append(p.statuses, s.status[kind])
		}
	}
	if len(s.limits[0]) > 0 && len(s.limits[1]) > 0 && !p.ends {
		n.Lacks(p.at.file, p.at.line, "nothing: a refused request is charged nowhere in weir",
			"limit_req also counts the requests that limit_conn refuses")
	}
	if p.kind == namedPlace {
		p.server.named = append(p.server.named, p)
		return
	}
	p.order = len(p.server.places)
	p.server.places = append(p.server.places, p)
}

// fallbackServer marks the server of unknown hosts. Only names tell the servers of rules apart.
func (n *nginxConf) fallbackServer() {
	listens := make(map[string]bool)
	var fallback *nginxServer
	for _, s := range n.servers {
		var at []string
		for _, d := range s.at.block {
			if d.name == "listen" && len(d.args) > 0 {
				at = append(at, d.args[0])
			}
		}
		slices.Sort(at)
		if len(at) == 0 {
			at = []string{"80"}
		}
		listens[strings.Join(at, " ")] = true
		if s.fallback && fallback == nil {
			fallback = s
		}
		s.fallback = false
	}
	if fallback == nil {
		fallback = n.servers[0]
	}
	fallback.fallback = true
	if len(listens) > 1 {
		d := n.servers[0].at
		n.Lacks(d.file, d.line, "import the servers of one port alone if their names do not tell them apart",
			"servers of several ports, which rules do not see")
	}
	for _, s := range n.servers {
		if !s.fallback && len(s.names) == 0 {
			n.Lacks(s.at.file, s.at.line, "give it a server_name; its limits are not imported",
				"a server without a name, beside the default server")
		}
	}
}

// realIP reads which proxies name the client.
func (n *nginxConf) realIP(list []*directive) {
	header, recursive, where := "X-Real-IP", false, (*directive)(nil)
	for _, d := range list {
		if d.name == "server" {
			n.realIPWithin(d)
			continue
		}
		arg := strings.Join(d.args, " ")
		switch d.name {
		case "set_real_ip_from":
			n.result.Rules.TrustedProxies = append(n.result.Rules.TrustedProxies, arg)
			where = d
		case "real_ip_header":
			header = arg
		case "real_ip_recursive":
			recursive = arg == "on"
		}
	}
	if where == nil {
		return
	}
	known := []string{"X-Forwarded-For", "X-Real-IP", "CF-Connecting-IP"}
	i := slices.IndexFunc(known, func(name string) bool { return strings.EqualFold(name, header) })
	if i < 0 {
		n.Lacks(where.file, where.line, "see --trusted-proxies and server.client_header", "real_ip_header %s", header)
		n.result.Rules.TrustedProxies = nil
		return
	}
	n.result.Rules.ClientHeader = known[i]
	if i == 0 && !recursive {
		n.Lacks(where.file, where.line, "nothing, if there is one proxy: weir walks past all trusted ones",
			"real_ip_recursive off")
	}
	file := &rules.File{Server: rules.Server{TrustedProxies: n.result.Rules.TrustedProxies},
		Rules: []rules.Spec{}}
	if _, err := rules.Compile(file); err != nil {
		n.Lacks(where.file, where.line, "write networks", "set_real_ip_from: %v", err)
		n.result.Rules.TrustedProxies, n.result.Rules.ClientHeader = nil, ""
	}
}

func (n *nginxConf) realIPWithin(d *directive) {
	for _, inner := range d.block {
		if strings.HasPrefix(inner.name, "real_ip_") || inner.name == "set_real_ip_from" {
			n.Lacks(inner.file, inner.line, "move it to http: all rules share trusted_proxies", "%s in %s", inner.name,
				d.name)
		}
		n.realIPWithin(inner)
	}
}

// text is the limit of a rule. After k requests nginx has an excess over the first of k−1: its burst is one less.
func (l *nginxLimit) text() string {
	if l.zone.rate == 0 {
		return fmt.Sprintf("concurrency %d ttl 30s", l.connections)
	}
	rate := fmt.Sprintf("%d/1000s", l.zone.rate)
	if l.zone.rate%1000 == 0 {
		rate = fmt.Sprintf("%d/1s", l.zone.rate/1000)
	}
	if l.delay == l.burst {
		return fmt.Sprintf("%s burst %d", rate, l.burst+1)
	}
	return fmt.Sprintf("%s burst %d overdraft %d", rate, l.delay+1, l.burst-l.delay)
}
