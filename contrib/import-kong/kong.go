package main

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/ruleimport"
)

// kong reads declarative files of Kong: its plugin rate-limiting, with the services and routes of a gateway. Of the
// plugins that a request meets, Kong runs the most specific; so the rules are of one group, in that order.
func kong(j *ruleimport.Job) {
	k := &kongConf{Document: ruleimport.Document{Job: j}, routesOf: make(map[string][]string)}
	for _, t := range j.Files {
		for _, d := range j.Documents(t) {
			k.Document = d
			k.Read(d.Root, "the file", ruleimport.Fields{
				"services":  func(n *yaml.Node) { k.each(n, "services", k.service) },
				"routes":    func(n *yaml.Node) { k.each(n, "routes", func(n *yaml.Node) { k.route(n, "") }) },
				"consumers": func(n *yaml.Node) { k.each(n, "consumers", k.consumer) },
				"plugins":   func(n *yaml.Node) { k.plugins(n, kongScope{}) },
				"consumer_groups": func(n *yaml.Node) {
					k.Lacks(n, "write a rule with match.user for the users of a group", "consumer_groups")
				},
			}.With("_format_version", "_transform", "_info", "_comment", "_workspace", "upstreams", "certificates",
				"ca_certificates", "snis", "vaults", "keys", "key_sets"), nil)
		}
	}
	if !j.Failed() {
		k.emit()
	}
}

// A kongConf is what the files have.
type kongConf struct {
	ruleimport.Document
	found    []kongPlugin
	routesOf map[string][]string // names of routes of the gateway, by service, or by "route " and the route
	shared   bool                // whether it was listed that nodes need a store
}

// A kongScope is what a plugin is bound to; "" is anything.
type kongScope struct{ consumer, route, service string }

// rank is the precedence of a plugin, the most specific first.
func (s *kongScope) rank() int {
	order := []bool{s.route != "" && s.service != "" && s.consumer != "", s.route != "" && s.consumer != "",
		s.service != "" && s.consumer != "", s.route != "" && s.service != "", s.consumer != "", s.route != "",
		s.service != ""}
	if i := slices.Index(order, true); i >= 0 {
		return i
	}
	return len(order)
}

// A kongPlugin is a plugin of rate-limiting.
type kongPlugin struct {
	scope  kongScope
	spec   rules.Spec
	by     string
	header string
	off    bool
	at     *yaml.Node
	file   string
}

func (k *kongConf) each(n *yaml.Node, what string, read func(*yaml.Node)) {
	for _, item := range k.Items(n, what) {
		read(item)
	}
}

// service reads a service, its routes and its plugins.
func (k *kongConf) service(n *yaml.Node) {
	name, protocol, host, port, path := "", "http", "", int64(0), ""
	var routes, plugins *yaml.Node
	k.Read(n, "a service", ruleimport.Fields{
		"name":     func(n *yaml.Node) { name = k.Text(n, "name") },
		"protocol": func(n *yaml.Node) { protocol = k.Text(n, "protocol") },
		"host":     func(n *yaml.Node) { host = k.Text(n, "host") },
		"port":     func(n *yaml.Node) { port = k.Number(n, "port", 1, 65535) },
		"path":     func(n *yaml.Node) { path = k.Text(n, "path") },
		"url":      func(n *yaml.Node) { protocol, host, port, path = urlParts(k.Text(n, "url")) },
		"routes":   func(n *yaml.Node) { routes = n },
		"plugins":  func(n *yaml.Node) { plugins = n },
	}.With("id", "tags", "enabled", "retries", "connect_timeout", "read_timeout", "write_timeout", "ca_certificates",
		"client_certificate", "tls_verify", "tls_verify_depth"), nil)
	if name == "" {
		if id := k.Child(n, "id"); id != nil {
			name = id.Value
		}
	}
	if name == "" {
		k.Wrong(n, "a service needs a name")
		return
	}
	if host != "" {
		address := protocol + "://" + host
		if port != 0 {
			address = protocol + "://" + net.JoinHostPort(host, strconv.FormatInt(port, 10))
		}
		k.AddService(k.File, n.Line, rules.ServiceSpec{Name: name, Addresses: []string{address}})
	}
	if routes != nil {
		k.each(routes, "routes", func(n *yaml.Node) { k.routeTo(n, name, path) })
	}
	if plugins != nil {
		k.plugins(plugins, kongScope{service: name})
	}
}

// urlParts are those of a URL, as far as they are there.
func urlParts(url string) (protocol, host string, port int64, path string) {
	protocol, rest, _ := strings.Cut(url, "://")
	host, path, found := strings.Cut(rest, "/")
	if found {
		path = "/" + path
	}
	if name, number, err := net.SplitHostPort(host); err == nil {
		if value, err := strconv.ParseInt(number, 10, 64); err == nil {
			host, port = name, value
		}
	}
	return protocol, host, port, path
}

func (k *kongConf) route(n *yaml.Node, service string) { k.routeTo(n, service, "") }

// routeTo reads a route. Each of its paths is a route of the gateway.
func (k *kongConf) routeTo(n *yaml.Node, service, add string) {
	name, strip := "", true
	var paths, hosts, methods []string
	var plugins *yaml.Node
	lack := func(what string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			k.Lacks(n, "write the condition into match of the rules", "%s of a route", what)
		}
	}
	k.Read(n, "a route", ruleimport.Fields{
		"name":       func(n *yaml.Node) { name = k.Text(n, "name") },
		"service":    func(n *yaml.Node) { service = k.reference(n) },
		"paths":      func(n *yaml.Node) { paths = k.Texts(n, "paths") },
		"hosts":      func(n *yaml.Node) { hosts = k.Texts(n, "hosts") },
		"methods":    func(n *yaml.Node) { methods = k.Texts(n, "methods") },
		"strip_path": func(n *yaml.Node) { strip = k.Flag(n, "strip_path") },
		"plugins":    func(n *yaml.Node) { plugins = n },
		"headers":    lack("headers"), "snis": lack("snis"), "sources": lack("sources"),
		"destinations": lack("destinations"), "expression": lack("expression"),
	}.With("id", "tags", "protocols", "preserve_host", "regex_priority", "path_handling", "priority",
		"https_redirect_status_code", "request_buffering", "response_buffering"), nil)
	if name == "" {
		name = fmt.Sprintf("%s-route-%d", service, len(k.routesOf[service])+1)
		k.Lacks(n, "name it in Kong, so that its rules keep their names", "a route without a name, here %s", name)
	}
	if len(paths) == 0 {
		paths = []string{"/"}
	}
	for i, path := range paths {
		r := rules.RouteSpec{Name: name, Host: hosts, Method: methods, Service: service,
			AddPrefix: strings.TrimSuffix(add, "/")}
		if i > 0 {
			r.Name = fmt.Sprintf("%s-%d", name, i+1)
		}
		k.routesOf[service] = append(k.routesOf[service], r.Name)
		k.routesOf["route "+name] = append(k.routesOf["route "+name], r.Name)
		if strings.HasPrefix(path, "~") || !ruleimport.PlainPath.MatchString(path) {
			k.Lacks(n, "write the route by hand", "route %.80s: path %.80q is a regular expression", r.Name, path)
			continue
		}
		path = strings.TrimRight(path, "/")
		r.Path = path + "/**"
		if strip {
			r.StripPrefix = path
		}
		k.AddRoute(k.File, n.Line, r)
	}
	if plugins != nil {
		k.plugins(plugins, kongScope{service: service, route: name})
	}
}

// reference is the name of what a plugin or route belongs to: a name, or an object with one.
func (k *kongConf) reference(n *yaml.Node) string {
	if ruleimport.IsNull(n) {
		return ""
	}
	for _, field := range []string{"name", "username", "id"} {
		if child := k.Child(n, field); child != nil {
			return k.Text(child, field)
		}
	}
	return k.Text(n, "a reference")
}

func (k *kongConf) consumer(n *yaml.Node) {
	for _, field := range []string{"username", "custom_id", "id"} {
		name, plugins := k.Child(n, field), k.Child(n, "plugins")
		if name == nil {
			continue
		}
		if plugins != nil {
			k.plugins(plugins, kongScope{consumer: k.Text(name, field)})
		}
		return
	}
	k.Wrong(n, "a consumer needs a username")
}

// plugins reads those of a scope.
func (k *kongConf) plugins(n *yaml.Node, scope kongScope) {
	for _, item := range k.Items(n, "plugins") {
		name := ""
		if child := k.Child(item, "name"); child != nil {
			name = k.Text(child, "name")
		}
		switch {
		case name == "rate-limiting":
			k.plugin(item, scope)
		case name == "rate-limiting-advanced":
			k.Lacks(item, "write a rule, with sliding_counter for window_type sliding", "plugin %s", name)
		case strings.Contains(name, "ratelimit") || strings.Contains(name, "rate-limit"):
			k.Lacks(item, "write a rule with cost or count_if", "plugin %s", name)
		}
	}
}

// kongPeriods are the periods of the plugin, as windows that begin together for all keys.
var kongPeriods = []struct{ field, format string }{{"second", "fixed_window %d/1s epoch"},
	{"minute", "fixed_window %d/1m epoch"}, {"hour", "fixed_window %d/1h epoch"}, {"day", "fixed_window %d/1d epoch"},
	{"month", "calendar %d/month"}, {"year", "calendar %d/year"}}

func (k *kongConf) plugin(n *yaml.Node, scope kongScope) {
	p := kongPlugin{scope: scope, by: "consumer", at: n, file: k.File}
	var config *yaml.Node
	k.Read(n, "the plugin", ruleimport.Fields{
		"config":   func(n *yaml.Node) { config = n },
		"enabled":  func(n *yaml.Node) { p.off = !k.Flag(n, "enabled") },
		"service":  func(n *yaml.Node) { p.scope.service = cmp.Or(k.reference(n), p.scope.service) },
		"route":    func(n *yaml.Node) { p.scope.route = cmp.Or(k.reference(n), p.scope.route) },
		"consumer": func(n *yaml.Node) { p.scope.consumer = cmp.Or(k.reference(n), p.scope.consumer) },
	}.With("name", "id", "tags", "protocols", "instance_name"), nil)
	if config == nil {
		k.Wrong(n, "config is missing")
		return
	}
	counts := make(map[string]int64)
	tolerant, policy, fault := true, "local", false
	table := ruleimport.Fields{
		"limit_by":       func(n *yaml.Node) { p.by = k.Text(n, "limit_by") },
		"header_name":    func(n *yaml.Node) { p.header = k.Text(n, "header_name") },
		"policy":         func(n *yaml.Node) { policy = k.Text(n, "policy") },
		"fault_tolerant": func(n *yaml.Node) { tolerant, fault = k.Flag(n, "fault_tolerant"), true },
		"error_code":     func(n *yaml.Node) { p.spec.Response.Status = int(k.Number(n, "error_code", 100, 999)) },
		"error_message":  func(n *yaml.Node) { p.spec.Message = messageOf(k.Text(n, "error_message")) },
		"hide_client_headers": func(n *yaml.Node) {
			if k.Flag(n, "hide_client_headers") {
				p.spec.Response.Fields = "none"
			}
		},
		"sync_rate": func(n *yaml.Node) {
			if k.Text(n, "sync_rate") != "-1" {
				k.Lacks(n, "see lease_percent, whose bound is stated", "sync_rate, by which nodes grant too much")
			}
		},
	}
	for _, period := range kongPeriods {
		table[period.field] = func(n *yaml.Node) {
			if !ruleimport.IsNull(n) {
				counts[period.field] = k.Number(n, period.field, 1, weir.MaxUnits)
			}
		}
	}
	k.Read(config, "config of rate-limiting", table, func(key, value *yaml.Node) { k.redis(key, value) })
	for _, period := range kongPeriods {
		if count, given := counts[period.field]; given {
			p.spec.Limit = append(p.spec.Limit, fmt.Sprintf(period.format, count))
		}
	}
	if len(p.spec.Limit) == 0 {
		k.Wrong(config, "config has no limit; give it second, minute, hour, day, month or year")
		return
	}
	if policy != "local" {
		k.share(config, policy)
		p.spec.OnStoreError = rules.AllowAll
		if fault && !tolerant {
			p.spec.OnStoreError = rules.RefuseAll
		}
	}
	k.found = append(k.found, p)
}

// redis accepts the fields of a Redis, which is listed once with the policy.
func (k *kongConf) redis(key, _ *yaml.Node) {
	if key.Value != "redis" && !strings.HasPrefix(key.Value, "redis_") {
		k.Lacks(key, "see whether limits depend on it", "config of rate-limiting has the field %.80q", key.Value)
	}
}

func (k *kongConf) share(n *yaml.Node, policy string) {
	if !k.shared {
		k.shared = true
		k.Lacks(n, "start all nodes with --store redis://…", "policy %s, by which nodes count together", policy)
	}
}

// messageOf is a message without placeholders.
func messageOf(text string) []rules.Translation {
	if text == "" {
		return nil
	}
	return []rules.Translation{{Text: strings.ReplaceAll(text, "{", "{{")}}
}

// emit writes the rules, the most specific first.
func (k *kongConf) emit() {
	slices.SortStableFunc(k.found, func(a, b kongPlugin) int { return a.scope.rank() - b.scope.rank() })
	for i := range k.found {
		k.rules(&k.found[i])
	}
}

// rules writes the rule of a plugin, and one for requests without what it counts by: Kong counts these by address.
func (k *kongConf) rules(p *kongPlugin) {
	spec := p.spec
	spec.Group, spec.Description = "kong", ruleimport.Origin(p.file, p.at.Line)
	spec.Name = "kong"
	for _, part := range []string{p.scope.consumer, p.scope.service, p.scope.route} {
		if part != "" {
			spec.Name += "-" + part
		}
	}
	if spec.Response.Status == http.StatusTooManyRequests {
		spec.Response.Status = 0
	}
	if p.off {
		spec.Enabled = new(bool)
	}
	switch {
	case p.scope.route != "":
		spec.Match.Route = k.routesOf["route "+p.scope.route]
	case p.scope.service != "":
		spec.Match.Route = k.routesOf[p.scope.service]
	}
	if (p.scope.route != "" || p.scope.service != "") && len(spec.Match.Route) == 0 {
		k.Job.Lacks(p.file, p.at.Line, "nothing limits there either", "a plugin of %s%s, which has no route",
			p.scope.service, p.scope.route)
		return
	}
	if p.scope.consumer != "" {
		spec.Match.User = []string{p.scope.consumer}
	}
	switch p.by {
	case "ip":
		spec.Key = []string{"client.ip v6/128"}
	case "consumer", "credential":
		if p.by == "credential" {
			k.Job.Lacks(p.file, p.at.Line, "choose another component of key, such as header.X-Api-Key",
				"limit_by credential: counted by user")
		}
		spec.Key = []string{"user"}
		if p.scope.consumer == "" {
			k.byAddress(p, spec, rules.Match{User: []string{"*"}})
		}
	case "header":
		spec.Key = []string{"header." + p.header}
		k.byAddress(p, spec, rules.Match{Header: map[string][]string{p.header: {"*"}}})
	case "service":
		spec.Key = []string{"service"}
	default:
		k.Job.Lacks(p.file, p.at.Line, "write a rule by hand; nothing limits there now", "limit_by %.80s", p.by)
		return
	}
	k.Add(p.file, p.at.Line, spec)
}

// byAddress writes the rule for requests without what a plugin counts by. It comes before the plugin's own rule, which
// in the group is as specific: a condition on what is there would make that more specific than other plugins.
func (k *kongConf) byAddress(p *kongPlugin, spec rules.Spec, with rules.Match) {
	spec.Name += "-address"
	spec.Match.Not = []rules.Match{with}
	spec.Key = []string{"client.ip v6/128"}
	k.Add(p.file, p.at.Line, spec)
}
