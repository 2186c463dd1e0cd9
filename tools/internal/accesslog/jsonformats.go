package accesslog

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
)

// A place is where a value may be; of several paths the first that is in the log is read.
type place struct {
	variable
	paths  []string
	needed bool
}

// parsePlaces reads client=.ip|.address,time!=.ts.
func parsePlaces(text string) (list []place, err error) {
	for pair := range strings.SplitSeq(text, ",") {
		key, paths, _ := strings.Cut(strings.TrimSpace(pair), "=")
		key, needed := strings.CutSuffix(key, "!")
		v, known := names[key]
		if name, found := strings.CutPrefix(key, "header."); found && name != "" {
			v, known = variable{field: header, header: textproto.CanonicalMIMEHeaderKey(name)}, true
		}
		switch {
		case !known:
			return nil, fmt.Errorf("map: %q is not known; allowed are %s", key, strings.Join(MapFields(), ", "))
		case paths == "":
			return nil, fmt.Errorf("map: %s has no path, as in %s=.%s", key, key, key)
		}
		list = append(list, place{v, strings.Split(paths, "|"), needed})
	}
	return list, nil
}

// mapped is the format of a map that a user gives.
func mapped(text string) (f format, err error) {
	list, err := parsePlaces(text)
	if err != nil {
		return f, err
	}
	root := &node{}
	for _, p := range list {
		to := root
		if len(p.paths) > 1 { // one path may be within another, of which one is read
			to = &node{}
		}
		for _, path := range p.paths {
			if err := to.add(path, p.field, p.header); err != nil {
				return f, fmt.Errorf("map: %s: %w", path, err)
			}
		}
	}
	if !slices.ContainsFunc(list, func(p place) bool { return p.field == start || p.field == end }) {
		return f, errors.New("map: there is no time; name where it is, as time=.ts")
	}
	return format{name: "json", prepare: func(sample []string) (format, bool) {
		return jsonFormat("json", list, End, sample)
	}}, nil
}

// jsonFormat is the format that reads lines with the keys of a sample; false: a needed value is missing, or the
// time.
func jsonFormat(name string, places []place, timeIs TimeIs, sample []string) (format, bool) {
	lines := decode(sample)
	if len(lines) == 0 {
		return format{}, false
	}
	has := func(path string) bool {
		return slices.ContainsFunc(lines, func(line any) bool { return hasValue(line, strings.Split(path, ".")[1:]) })
	}
	root := &node{}
	var found []field
	for _, p := range places {
		at := slices.IndexFunc(p.paths, has)
		switch {
		case p.needed && at < 0:
			return format{}, false
		case at < 0 && len(p.paths) == 1:
			at = 0 // a path that is perhaps not a plain one
		case at < 0 && p.rare():
			for _, path := range p.paths {
				root.add(path, p.field, p.header) // an error: the place has another value
			}
			continue
		case at < 0:
			continue
		}
		if root.add(p.paths[at], p.field, p.header) == nil {
			found = append(found, p.field)
		}
	}
	if slices.ContainsFunc(found, startsKnown) {
		timeIs = Start
	}
	untimed := !slices.Contains(found, start) && !slices.Contains(found, end)
	if untimed && slices.Contains(found, descriptors) {
		timeIs = Order
	}
	isHTTP := slices.ContainsFunc(found, func(f field) bool { return f == target || f == request })
	read := func(line string, d *draft) error {
		if d.isHTTP = isHTTP; timeIs == Order {
			d.count()
		}
		err := root.read(line, d)
		if err == nil && d.Descriptors == nil && slices.Contains(found, descriptors) {
			err = errDescriptors
		}
		return err
	}
	return format{name: name, timeIs: timeIs, read: read}, !untimed || timeIs == Order
}

// rare reports whether a value may be missing in the first hundred lines of a log, and not in the others.
func (p *place) rare() bool { return p.field == user || p.field == agent || p.field == header }

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
	return value != nil && (!isObject || len(path) > 0 && path[len(path)-1] == "headers")
}
