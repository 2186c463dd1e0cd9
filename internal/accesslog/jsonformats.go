package accesslog

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"
)

// A jsonFormat is a product's, or the well-known names of many.
type jsonFormat struct {
	name   string
	needs  []string // paths that lines of the product have
	timeIs TimeIs   // without start or duration
	fields []jsonField
}

// A jsonField is where a value may be; of several places the first that is in the log is read. Of several entries for
// one field too.
type jsonField struct {
	field field
	name  string
	paths []string
}

func at(f field, paths ...string) jsonField { return jsonField{field: f, paths: paths} }

func headerAt(name string, paths ...string) jsonField {
	if name == "User-Agent" {
		return jsonField{agent, name, paths}
	}
	return jsonField{header, name, paths}
}

// jsonFormats are in the order in which they are tried.
var jsonFormats = []jsonFormat{
	{"caddy", []string{".request.method", ".request.uri", ".ts"}, End, []jsonField{
		at(end, ".ts"), at(took, ".duration"),
		at(client, ".request.client_ip", ".request.remote_ip", ".request.remote_addr"),
		at(user, ".user_id"), at(method, ".request.method"), at(host, ".request.host"), at(target, ".request.uri"),
		at(status, ".status"), at(size, ".size"), at(headers, ".request.headers"),
	}},
	{"traefik-json", []string{".StartUTC", ".RequestMethod", ".RequestPath"}, Start, []jsonField{
		at(start, ".StartUTC"), at(tookNanos, ".Duration"), at(client, ".ClientHost", ".ClientAddr"),
		at(user, ".ClientUsername"), at(method, ".RequestMethod"), at(host, ".RequestHost", ".RequestAddr"),
		at(target, ".RequestPath"), at(status, ".DownstreamStatus"), at(size, ".DownstreamContentSize"),
		headerAt("User-Agent", ".request_User-Agent"), headerAt("Referer", ".request_Referer"),
		headerAt("X-Forwarded-For", ".request_X-Forwarded-For"),
	}},
	{"logpush", []string{".EdgeStartTimestamp", ".ClientIP"}, Start, []jsonField{
		at(start, ".EdgeStartTimestamp"), at(end, ".EdgeEndTimestamp"), at(client, ".ClientIP"),
		at(method, ".ClientRequestMethod"), at(host, ".ClientRequestHost"),
		at(target, ".ClientRequestURI", ".ClientRequestPath"), at(status, ".EdgeResponseStatus"),
		at(size, ".EdgeResponseBytes"), headerAt("User-Agent", ".ClientRequestUserAgent"),
		headerAt("Referer", ".ClientRequestReferer"),
	}},
	{"envoy-json", []string{".start_time", ".response_code"}, Start, []jsonField{
		at(start, ".start_time"), at(tookMillis, ".duration"),
		at(client, ".downstream_remote_address", ".downstream_direct_remote_address"),
		at(method, ".method"), at(host, ".authority", ".:authority"), at(target, ".path", ".x-envoy-origin-path"),
		at(status, ".response_code"), at(size, ".bytes_sent"), headerAt("User-Agent", ".user_agent", ".user-agent"),
		headerAt("X-Forwarded-For", ".x_forwarded_for", ".x-forwarded-for"),
	}},
	{"json", nil, Either, []jsonField{
		at(start, ".start_time", ".startTime"),
		at(end, ".msec", ".time_iso8601", ".time_local", ".@timestamp", ".timestamp", ".time", ".ts", ".datetime"),
		at(took, ".request_time", ".httpRequest.latency"), at(tookMillis, ".duration_ms", ".latency_ms"),
		at(client, ".remote_addr", ".remote_ip", ".client_ip", ".clientip", ".remoteAddr", ".remote_address",
			".remote_host", ".httpRequest.remoteIp", ".client.ip", ".source.ip", ".client", ".ip", ".remoteIP"),
		at(user, ".remote_user", ".user.name", ".username", ".user"),
		at(target, ".request_uri", ".uri", ".httpRequest.requestUrl", ".url.original", ".url", ".request_path",
			".path"),
		at(query, ".query_string", ".args", ".query"),
		at(method, ".request_method", ".method", ".verb", ".httpRequest.requestMethod", ".http.request.method"),
		at(request, ".request", ".request_line"),
		at(host, ".http_host", ".host", ".server_name", ".vhost", ".authority", ".url.domain"),
		at(status, ".status", ".status_code", ".response_code", ".httpRequest.status", ".http.response.status_code"),
		at(size, ".body_bytes_sent", ".bytes_sent", ".bytes", ".size", ".response_size", ".httpRequest.responseSize"),
		headerAt("User-Agent", ".http_user_agent", ".user_agent", ".userAgent", ".agent", ".httpRequest.userAgent",
			".user_agent.original"),
		headerAt("Referer", ".http_referer", ".http_referrer", ".referer", ".referrer", ".httpRequest.referer"),
		headerAt("X-Forwarded-For", ".http_x_forwarded_for", ".x_forwarded_for"),
	}},
}

// format is the one that reads lines with the keys of a sample.
func (f jsonFormat) format(sample []string) (format, bool) {
	lines := decode(sample)
	has := func(path string) bool {
		return slices.ContainsFunc(lines, func(line any) bool { return hasValue(line, strings.Split(path, ".")[1:]) })
	}
	if len(lines) == 0 || slices.ContainsFunc(f.needs, func(path string) bool { return !has(path) }) {
		return format{}, false
	}
	root := &node{}
	var found []field
	for _, place := range f.fields {
		at := slices.IndexFunc(place.paths, has)
		switch {
		case at < 0 && place.rare():
			for _, path := range place.paths {
				root.add(path, place.field, place.name) // an error: the place has another value
			}
		case at < 0 || place.field != header && slices.Contains(found, place.field):
		case root.add(place.paths[at], place.field, place.name) == nil:
			found = append(found, place.field)
		}
	}
	return jsonFormatOf(f.name, root, found, f.timeIs), slices.Contains(found, start) || slices.Contains(found, end)
}

// rare reports whether a value may be missing in the first hundred lines of a log, and not in the others.
func (p *jsonField) rare() bool { return p.field == user || p.field == agent || p.field == header }

func jsonFormatOf(name string, root *node, fields []field, timeIs TimeIs) format {
	if slices.ContainsFunc(fields, startsKnown) {
		timeIs = Start
	}
	isHTTP := slices.ContainsFunc(fields, func(f field) bool { return f == target || f == path || f == request })
	return format{name: name, timeIs: timeIs, read: func(line string, d *draft) error {
		d.isHTTP = isHTTP
		return root.read(line, d)
	}}
}

func startsKnown(f field) bool { return f == start || f >= took && f <= tookNanos }

func decode(sample []string) (objects []any) {
	for _, line := range sample {
		var object map[string]any
		if json.Unmarshal([]byte(line), &object) == nil && object != nil {
			objects = append(objects, object)
		}
	}
	return objects
}

// hasValue reports whether there is a value at the path that is not null.
func hasValue(value any, path []string) bool {
	for _, key := range path {
		object, _ := value.(map[string]any)
		value = object[key]
	}
	_, isObject := value.(map[string]any)
	return value != nil && (!isObject || path[len(path)-1] == "headers")
}

// mapFields are the names that Options.Map may have, and header.NAME.
var mapFields = map[string]field{
	"client": client, "user": user, "method": method, "host": host, "path": target, "target": target, "query": query,
	"request": request, "time": end, "end": end, "start": start, "took": took, "took_ms": tookMillis,
	"took_us": tookMicros, "took_ns": tookNanos, "status": status, "bytes": size, "agent": agent, "headers": headers,
}

// MapFields are the names that Options.Map may have; header.NAME too.
func MapFields() []string { return append(slices.Sorted(maps.Keys(mapFields)), "header.NAME") }

func mappedJSON(places map[string]string) (format, error) {
	root := &node{}
	var fields []field
	for _, key := range slices.Sorted(maps.Keys(places)) {
		f, known := mapFields[key]
		name, isHeader := strings.CutPrefix(key, "header.")
		if isHeader && name != "" {
			f, known, name = header, true, textproto.CanonicalMIMEHeaderKey(name)
		}
		if f == agent {
			name = "User-Agent"
		}
		if !known {
			return format{}, fmt.Errorf("map: %q is not known; allowed are %s", key, strings.Join(MapFields(), ", "))
		}
		if places[key] == "" {
			return format{}, fmt.Errorf("map: %s has no path", key)
		}
		if err := root.add(places[key], f, name); err != nil {
			return format{}, fmt.Errorf("map: %s=%s: %w", key, places[key], err)
		}
		fields = append(fields, f)
	}
	if !slices.Contains(fields, start) && !slices.Contains(fields, end) {
		return format{}, fmt.Errorf("map: there is no time; name where it is, as time=.ts")
	}
	f := jsonFormatOf("json", root, fields, End)
	return f, nil
}
