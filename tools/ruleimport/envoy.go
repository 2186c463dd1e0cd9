package ruleimport

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// envoy reads the files of envoyproxy/ratelimit: a domain and a tree of descriptors. That service follows the entries
// of a descriptor down the tree without going back: at each level the node with the entry's value, else the first
// wildcard that fits, else the node without a value. The limit is the limit of the node of the last entry, and counts
// each value of each entry separately. One rule is one node with a limit: descriptor_keys are its keys, and not
// excludes what another branch would take.
func envoy(j *Job) {
	domains := make(map[string]bool)
	for _, t := range j.Files {
		for _, d := range j.Documents(t) {
			e := &envoyDomain{Document: d}
			e.domain(domains)
		}
	}
}

// An envoyDomain is a file that is read.
type envoyDomain struct {
	Document
	name string
}

// An envoyNode is a descriptor of the tree.
type envoyNode struct {
	at       *yaml.Node
	key      string
	value    string // of a wildcard with its stars
	kind     envoyKind
	limit    *envoyLimit
	shadow   bool
	shared   bool // all values of a wildcard share a count
	odd      bool // the key has no equal: nothing below limits anything
	ruled    bool // its limit is a rule
	children []*envoyNode
}

// An envoyKind is how a node matches, the most specific first.
type envoyKind uint8

const (
	envoyExact envoyKind = iota
	envoyWild
	envoyAny
)

type envoyLimit struct {
	perUnit   int64
	unit      string
	unlimited bool
	name      string
}

// domain reads a file.
func (e *envoyDomain) domain(domains map[string]bool) {
	var descriptors *yaml.Node
	e.Read(e.Root, "the file", Fields{
		"domain":      func(n *yaml.Node) { e.name = e.Text(n, "domain") },
		"descriptors": func(n *yaml.Node) { descriptors = n },
	}, nil)
	switch {
	case e.Root.Kind != yaml.MappingNode:
		return
	case e.name == "":
		e.Wrong(e.Root, "domain is missing; a file of envoyproxy/ratelimit has a domain and descriptors")
		return
	case domains[e.name]:
		e.Wrong(e.Root, "domain %.80q occurs twice", e.name)
		return
	case e.name == "*":
		e.Wrong(e.Root, "domain is \"*\", which in a rule is any domain; allowed: a name")
		return
	}
	domains[e.name] = true
	if descriptors != nil {
		e.emit(nil, e.nodes(descriptors))
	}
}

// nodes reads a list of descriptors, in the order of their trial.
func (e *envoyDomain) nodes(n *yaml.Node) (list []*envoyNode) {
	type identity struct {
		key, value string
		kind       envoyKind
	}
	seen := make(map[identity]bool)
	for _, item := range e.Items(n, "descriptors") {
		node := e.node(item)
		if node == nil {
			continue
		}
		id := identity{node.key, node.value, node.kind}
		if seen[id] {
			e.Wrong(item, "descriptor %.80q with value %.80q occurs twice", node.key, node.value)
			continue
		}
		seen[id] = true
		list = append(list, node)
	}
	slices.SortStableFunc(list, func(a, b *envoyNode) int { return int(a.kind) - int(b.kind) })
	return list
}

func (e *envoyDomain) node(n *yaml.Node) *envoyNode {
	node := &envoyNode{at: n, kind: envoyAny}
	var limit, children *yaml.Node
	metric := func(name string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			if e.Flag(n, name) {
				e.Lacks(n, "nothing: weir counts each rule in weir_decisions_total, and lists keys in weir stats",
					"%s changes the names of metrics", name)
			}
		}
	}
	e.Read(n, "a descriptor", Fields{
		"key":             func(n *yaml.Node) { node.key = e.Text(n, "key") },
		"value":           func(n *yaml.Node) { node.value = e.Text(n, "value") },
		"rate_limit":      func(n *yaml.Node) { limit = n },
		"descriptors":     func(n *yaml.Node) { children = n },
		"shadow_mode":     func(n *yaml.Node) { node.shadow = e.Flag(n, "shadow_mode") },
		"share_threshold": func(n *yaml.Node) { node.shared = e.Flag(n, "share_threshold") },
		"detailed_metric": metric("detailed_metric"),
		"value_to_metric": metric("value_to_metric"),
		"quota_mode": func(n *yaml.Node) {
			if e.Flag(n, "quota_mode") {
				e.Lacks(n, "write mode: shadow into the rule if it must not refuse; it enforces", "quota_mode")
			}
		},
	}, nil)
	switch {
	case n.Kind != yaml.MappingNode:
		return nil
	case node.key == "":
		e.Wrong(n, "key is missing; each descriptor has one")
		return nil
	}
	if strings.Contains(node.value, "*") {
		node.kind = envoyWild
	} else if node.value != "" {
		node.kind = envoyExact
	} else if strings.HasSuffix(node.key, "*") {
		e.Lacks(n, "write one descriptor for each key", "key %.80q ends with a star", node.key)
		node.odd = true
	}
	if node.shared && node.kind != envoyWild {
		node.shared = false
	}
	if limit != nil && !IsNull(limit) {
		node.limit = e.limit(limit)
	}
	if children != nil {
		node.children = e.nodes(children)
	}
	return node
}

// envoyUnits are the units with windows that weir has too.
var envoyUnits = map[string]string{"SECOND": "1s", "MINUTE": "1m", "HOUR": "1h", "DAY": "1d"}

// limit is nil for one that has no equal.
func (e *envoyDomain) limit(n *yaml.Node) *envoyLimit {
	limit := &envoyLimit{}
	unit, multiplier := "", int64(1)
	e.Read(n, "rate_limit", Fields{
		"requests_per_unit": func(n *yaml.Node) {
			limit.perUnit = e.Number(n, "requests_per_unit", 0, math.MaxUint32)
		},
		"unit":      func(n *yaml.Node) { unit = strings.ToUpper(e.Text(n, "unit")) },
		"unlimited": func(n *yaml.Node) { limit.unlimited = e.Flag(n, "unlimited") },
		"name":      func(n *yaml.Node) { limit.name = e.Text(n, "name") },
		"replaces": func(n *yaml.Node) {
			e.Lacks(n, "both limits apply to a request with both descriptors: send one of the two",
				"replaces switches other limits off by their names")
		},
		"unit_multiplier": func(n *yaml.Node) {
			multiplier = e.Number(n, "unit_multiplier", 0, math.MaxUint32)
		},
	}, nil)
	var known bool
	limit.unit, known = envoyUnits[unit]
	switch {
	case n.Kind != yaml.MappingNode || limit.unlimited:
	case multiplier > 1:
		e.Lacks(n, "add a rule with the longer period by hand, such as fixed_window 10/30m epoch; nothing limits "+
			"these requests now", "unit_multiplier %d", multiplier)
		return nil
	case slices.Contains([]string{"WEEK", "MONTH", "YEAR"}, unit):
		e.Lacks(n, fmt.Sprintf("add a rule with calendar %d/%s by hand; nothing limits these requests now",
			limit.perUnit, strings.ToLower(unit)), "unit %s", strings.ToLower(unit))
		return nil
	case !known:
		e.Wrong(n, "unit is %.80q; allowed: second, minute, hour, day, week, month, year", unit)
	}
	return limit
}

// A level is a node of a path, with the nodes beside it.
type level struct {
	*envoyNode
	beside []*envoyNode
}

// emit writes the rules of nodes below a path, in the order of their trial.
func (e *envoyDomain) emit(path []level, nodes []*envoyNode) {
	for _, node := range nodes {
		here := append(slices.Clone(path), level{node, nodes})
		if node.limit != nil && !node.limit.unlimited && !e.impossible(here) {
			node.ruled = e.rule(here)
		}
		e.emit(here, node.children)
	}
}

// impossible lists a limit that no rule can have.
func (e *envoyDomain) impossible(path []level) bool {
	node := path[len(path)-1]
	keys := make(map[string]bool)
	for i := range path {
		if path[i].odd {
			return true // listed already
		}
		if keys[path[i].key] {
			e.Lacks(node.at, "rename one in Envoy's actions by descriptor_key; nothing limits these requests now",
				"a descriptor with the key %.80q twice, of which rules see the first", path[i].key)
			return true
		}
		keys[path[i].key] = true
	}
	if len(path) > bounds.Components {
		e.Lacks(node.at, "send fewer entries; nothing limits these requests now",
			"a descriptor of %d entries: rules count by at most %d", len(path), bounds.Components)
		return true
	}
	return false
}

// rule writes the rule of the last node of a path.
func (e *envoyDomain) rule(path []level) bool {
	node := path[len(path)-1]
	name := e.name
	spec := rules.Spec{Group: "envoy", Description: e.Origin(node.at), Label: node.limit.name}
	spec.Match = rules.Match{Service: []string{e.name}, Descriptor: make(map[string][]string)}
	for i := range path {
		at := &path[i]
		name += "." + at.key
		spec.Match.DescriptorKeys = append(spec.Match.DescriptorKeys, at.key)
		if !at.shared {
			spec.Key = append(spec.Key, "descriptor."+at.key)
		}
		switch at.kind {
		case envoyExact:
			name += "_" + at.value
			spec.Match.Descriptor[at.key] = []string{at.value}
		case envoyWild:
			name += "_" + strings.ReplaceAll(at.value, "*", "") + "_any"
			if spec.Match.Regex.Descriptor == nil {
				spec.Match.Regex.Descriptor = make(map[string][]string)
			}
			spec.Match.Regex.Descriptor[at.key] = []string{wildcard(at.value)}
		}
		spec.Match.Not = append(spec.Match.Not, at.excluded(i == len(path)-1)...)
	}
	if len(spec.Match.Descriptor) == 0 {
		spec.Match.Descriptor = nil
	}
	spec.Name = name
	spec.Limit = []string{fmt.Sprintf("fixed_window %d/%s epoch", node.limit.perUnit, node.limit.unit)}
	if node.limit.perUnit == 0 { // every request is over such a limit
		spec.Limit = []string{"fixed_window 1/1s epoch"}
		spec.Deny = map[string][]string{"descriptor." + node.key: {"*"}}
	}
	if node.shadow {
		spec.Mode = rules.Shadow
	}
	return e.Add(e.File, node.at.Line, spec)
}

// wildcard is an expression for the texts that fit a value; a star stands for any text.
func wildcard(value string) string { return strings.ReplaceAll(regexp.QuoteMeta(value), `\*`, ".*") }

// fits reports whether a text fits a value with stars.
func fits(value, text string) bool {
	return regexp.MustCompile("(?s)^" + wildcard(value) + "$").MatchString(text)
}

// excluded are the entries that a node before this one takes. At the last level of a path no exclusion is needed for
// an entry with a rule of the same group and more specific, or as specific and earlier.
func (l *level) excluded(last bool) (list []rules.Match) {
	var values, expressions []string
	for _, other := range l.beside {
		if other == l.envoyNode {
			break
		}
		resolved := last && other.ruled && other.shadow == l.shadow
		switch {
		case other.key != l.key || l.kind == envoyExact || resolved:
		case other.kind == envoyExact && (l.kind == envoyAny || fits(l.value, other.value)):
			values = append(values, other.value)
		case other.kind == envoyWild:
			expressions = append(expressions, wildcard(other.value))
		}
	}
	for chunk := range slices.Chunk(values, bounds.Values) {
		list = append(list, rules.Match{Descriptor: map[string][]string{l.key: chunk}})
	}
	for chunk := range slices.Chunk(expressions, bounds.Values) {
		list = append(list, rules.Match{Regex: rules.Expressions{Descriptor: map[string][]string{l.key: chunk}}})
	}
	return list
}
