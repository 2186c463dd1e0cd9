package simulate

import (
	"cmp"
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"github.com/weirproject/weir/rules"
)

// complete is the Config with requests in all loads. Without loads, each rule has one.
func (c *Config) complete() (*Config, error) {
	all := *c
	all.Loads = slices.Clone(c.Loads)
	if len(c.Loads) == 0 {
		all.Loads = usualLoads(c.File)
	}
	for i := range all.Loads {
		l := &all.Loads[i]
		if l.Rule != "" {
			spec, ok := find(c.File, l.Rule)
			if !ok {
				return nil, wrong("load: rule", l.Rule, "the name of a rule of the file")
			}
			if err := l.meet(spec); err != nil {
				return nil, err
			}
		}
		l.Request.Method, l.Request.Path = cmp.Or(l.Request.Method, "GET"), cmp.Or(l.Request.Path, "/")
	}
	return &all, nil
}

func find(file *rules.File, name string) (*rules.Spec, bool) {
	i := slices.IndexFunc(file.Rules, func(s rules.Spec) bool { return s.Name == name })
	if i < 0 {
		return nil, false
	}
	return &file.Rules[i], true
}

// usualLoads are 100 requests a second by 100 clients for each rule that is enforced and can be met.
func usualLoads(file *rules.File) (list []Load) {
	for i := range file.Rules {
		l := Load{Rate: 100, Keys: 100, Rule: file.Rules[i].Name}
		s := &file.Rules[i]
		probe := l
		if s.Mode != rules.Shadow && (s.Enabled == nil || *s.Enabled) && probe.meet(s) == nil && len(list) < maxLoads {
			list = append(list, l)
		}
	}
	if len(list) == 0 {
		return []Load{{Rate: 100, Keys: 100}}
	}
	return list
}

// meet fills in a request that a rule matches, and a key for each client.
func (l *Load) meet(s *rules.Spec) error {
	m := &s.Match
	if len(m.Any)+len(m.Not)+len(m.Client)+len(m.Country)+len(m.ASN)+len(m.DescriptorKeys)+len(m.Regex.Path)+
		len(m.Regex.Header)+len(m.Regex.Descriptor) > 0 {
		return wrong("load: rule", s.Name, "a rule whose match has only method, host, path, service, user, route, "+
			"header, query and descriptor; for another, describe the requests by path= and other words")
	}
	r := &l.Request
	r.Method = cmp.Or(r.Method, first(m.Method))
	r.Host = cmp.Or(r.Host, strings.Replace(first(m.Host), "*.", "www.", 1))
	r.Path = cmp.Or(r.Path, pathOf(m.Path, s.Key))
	r.Service = cmp.Or(r.Service, either(m.Service))
	r.User = cmp.Or(r.User, either(m.User))
	r.Route = cmp.Or(r.Route, either(m.Route))
	l.addValues("header", m.Header)
	l.addValues("query", m.Query)
	l.addValues("descriptor", m.Descriptor)
	for _, component := range s.Key {
		component, _, _ = strings.Cut(component, " ") // without its normalisers
		kind, name, _ := strings.Cut(component, ".")
		switch {
		case slices.Contains(kinds, kind):
			l.addValues(kind, map[string][]string{name: {number}})
		case component == "user":
			r.User = cmp.Or(r.User, number)
		}
	}
	return nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// either is the first value, or for "*", which every value meets, one of the client.
func either(list []string) string { return strings.Replace(first(list), "*", number, 1) }

// addValues adds values that the load does not have yet.
func (l *Load) addValues(kind string, values map[string][]string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		of := name
		if kind == "header" {
			of = textproto.CanonicalMIMEHeaderKey(name)
		}
		if !slices.ContainsFunc(l.Values, func(v Value) bool { return v.Kind == kind && v.Name == of }) {
			l.Values = append(l.Values, Value{kind, of, either(values[name])})
		}
	}
}

// pathOf is a path that a pattern matches, with the number of the client in the segments of its key.
func pathOf(pattern string, key []string) string {
	segments := strings.Split(pattern, "/")
	for i, s := range segments {
		name, named := strings.CutPrefix(s, "{")
		switch {
		case named && slices.Contains(key, "path."+strings.TrimSuffix(name, "}")):
			segments[i] = number
		case named, s == "*", s == "**":
			segments[i] = "x"
		}
	}
	return strings.Join(segments, "/")
}
