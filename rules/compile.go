package rules

import (
	"cmp"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
)

// An Option changes how Parse reads a file, or how Compile makes a Set of it.
type Option func(*options)

type options struct {
	secret []byte
	read   func(name string) ([]byte, error) // reads files of list values; nil: not allowed
}

func newOptions(opts []Option) (o options) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// WithHashKey sets the key of the hash that replaces long keys. It must be the same on all nodes of a store. The
// default is an empty key: then anyone can compute the hash.
func WithHashKey(key []byte) Option {
	secret := slices.Clone(key)
	return func(o *options) { o.secret = secret }
}

// Compile checks a file and makes a Set of it, which shares no memory with the file. The error is an *Error that lists
// every mistake.
func Compile(file *File, opts ...Option) (*Set, error) { return compile(file, newOptions(opts)) }

func compile(file *File, o options) (*Set, error) {
	r := &report{file: file.Name}
	if len(file.Rules) > MaxRules {
		r.add(at(-1, "rules"), "%d rules; at most %d", len(file.Rules), MaxRules)
		return nil, r.err()
	}
	set := build(file, r, o)
	if err := r.err(); err != nil {
		return nil, err
	}
	if err := set.Except(file); err != nil {
		return nil, err
	}
	return set, nil
}

// A builder makes a Set, and reports mistakes of the data.
type builder struct {
	*report
	set         *Set
	states      map[string]int // the rule that has a limit of this name
	attributes  map[attribute]bool
	asking      map[string]int // the set's; nil: there is none
	groups      map[string]int // by mode and name
	nodes       int
	more        int // claims that exceptions add to those of the rules
	programs    int // steps of all regular expressions
	overrides   int // of all rules
	listed      int // values of all lists
	zones       map[string]*time.Location
	specs       map[string]weir.Spec   // by text: many rules have the same limit
	keys        map[string][]component // of one component, by its text
	treeBuilder treeBuilder

	fileMessage  *message
	fileResponse response  // over the defaults
	usual        *response // of rules that say nothing of their own
}

// An attribute is the subject of a condition.
type attribute struct {
	kind source
	name string
}

func build(file *File, r *report, o options) *Set {
	set := newSet()
	set.keyHash = newSeal(o.secret)
	b := &builder{report: r, set: set, states: make(map[string]int, len(file.Rules)), specs: make(map[string]weir.Spec),
		keys: make(map[string][]component), asking: set.asking,
		attributes: make(map[attribute]bool), groups: make(map[string]int),
		zones: make(map[string]*time.Location), treeBuilder: treeBuilder{set: set}}
	b.server(file)
	b.services(file.Services)
	b.routes(file.Routes)
	set.lists = b.lists(-1, file.Allow, file.Deny, "")
	set.geo = set.lists.geo()
	b.fileResponse = b.over(-1, b.response(-1, &file.Response), defaults)
	b.usual = b.fileResponse.complete()
	b.fileMessage = b.message(-1, file.Message)
	given := file
	file = file.expanded()
	all := make([]Rule, len(file.Rules))
	set.rules = make([]*Rule, 0, len(all))
	overlaid, _ := file.overlaid(nil)
	for i := range all {
		all[i] = Rule{set: set, index: i, name: file.Rules[i].Name}
		_, all[i].preset = given.Rules[i].preset()
		b.rule(i, &overlaid.Rules[i], &all[i])
	}
	b.treeBuilder.finish()
	b.overlay(file, o)
	b.jsonPaths()
	if len(b.problems) == 0 {
		b.claims()
		b.work()
	}
	return set
}

// A way is a place of a rule in the tree.
type way struct {
	hosts      []string
	path       string
	conditions []condition
}

// ways checks the match of a rule, and returns its places in the tree: one for each alternative of any.
func (b *builder) ways(i int, s *Spec, rule *Rule) []way {
	p, m := at(i, "match"), &s.Match
	b.path(at(i, "match.path"), m.Path)
	own := way{b.hosts(at(i, "match.host"), m.Host), b.set.inForm(m.Path), b.conditions(p, m)}
	rule.rank = rank(own.hosts, own.path, own.conditions)
	rule.filter = b.filter(p, m)
	if rule.filter == nil {
		return []way{own}
	}
	ways := []way{own}
	if len(m.Any) > 0 && len(b.problems) == 0 {
		ways = nil
		for _, one := range m.Alternatives() {
			hosts := b.hosts(at(i, "match.host"), one.Host)
			ways = append(ways, way{hosts, b.set.inForm(one.Path), b.conditions(p, &one)})
		}
	}
	rule.rank = leastRank(ways, rule.filter)
	rule.everywhere = slices.ContainsFunc(ways, func(w way) bool {
		return len(w.hosts)+len(w.conditions) == 0 && (w.path == "" || w.path == "/**")
	})
	return ways
}

// inForm is a path's pattern as paths in the form of the set meet it.
func (s *Set) inForm(pattern string) string {
	if s.form.DropTrailingSlash && pattern != "/" {
		return strings.TrimSuffix(pattern, "/")
	}
	return pattern
}

// word checks that a value is one of those allowed. The first, which may be empty, is the default.
func word[T ~string](b *builder, p place, given T, allowed []T) T {
	if given == "" {
		return allowed[0]
	}
	if slices.Contains(allowed, given) {
		return given
	}
	var words []string
	for _, w := range allowed {
		if w != "" {
			words = append(words, string(w))
		}
	}
	b.add(p, "%s is %.80q; %s", p.field, string(given), oneOf(string(given), words))
	return allowed[0]
}

// count reports whether a list is short enough.
func (b *builder) count(p place, n, most int) bool {
	if n > most {
		b.add(p, "%s has %d values; at most %d", p.field, n, most)
	}
	return n <= most
}

// algorithms are the first words of limits: of all algorithms, and of the algorithms without leases.
var algorithms, unleased = words()

func words() (all, unleased []string) {
	for a := weir.Algorithm(1); a.Words() != nil; a++ {
		if a.Fair() { // its limits need members, which a text does not name
			continue
		}
		all = append(all, a.Words()...)
		if !a.Leases() {
			unleased = append(unleased, a.Words()...)
		}
	}
	return all, unleased
}

func (b *builder) algorithm(p place, word string) {
	if word != "" && !slices.Contains(algorithms, word) {
		b.add(p, "algorithm is %.80q; %s", word, oneOf(word, algorithms))
	}
}

// limits reads the limits of a rule or an override. They have the same names, since no key has both.
func (b *builder) limits(p place, given []string, s *Spec, rule *Rule, named bool) (list []*weir.Limit) {
	if len(given) == 0 && !b.has(p) {
		b.add(p, "%s is missing, such as limit: 100/1m", p.field)
	}
	if !b.count(p, len(given), bounds.Limits) {
		return nil
	}
	prefix := ""
	if slices.Contains(algorithms, s.Algorithm) {
		prefix = s.Algorithm + " "
	}
	for j, text := range given {
		item := place{p.rule, p.field, j}
		if text == "" && b.has(item) {
			continue
		}
		limit := b.limit(item, stateName(s.Name, j, named), prefix, text, rule.needs())
		if limit == nil {
			continue
		}
		if rule.fair != nil {
			limit = b.share(item, limit, rule.fair)
		}
		if rule.full && limit.Leases() {
			b.add(item, "charge: full cannot be of %s: leases are held, not owed", limit)
		}
		if rule.countIf != nil {
			b.countable(item, limit)
		}
		if s.Once != (Once{}) && limit.Leases() {
			b.add(item, "once does not go with %s: a repeated request would hold nothing; put the limit into a rule "+
				"of its own", limit)
		}
		list = append(list, limit)
	}
	return list
}

// closed is the limit of a rule that denies every request.
const closed = "none"

// unlimited is the limit of a rule that grants every request.
const unlimited = "unlimited"

// limited reports whether the rule has limits that count.
func (s *Spec) limited() bool {
	return len(s.Limit) != 1 || s.Limit[0] != closed && s.Limit[0] != unlimited
}

// An uncounted limit is one of these two. It counts no request, but each rule has a limit that people read.
type uncounted struct {
	weir.Spec
	text string
}

// String implements weir.Spec.
func (u uncounted) String() string { return u.text }

// uncountedLimit is the limit of a rule that counts nothing.
func uncountedLimit(name, text string) []*weir.Limit {
	window := weir.FixedWindow{Limit: 1, Window: 50_000 * 24 * time.Hour}
	return []*weir.Limit{weir.MustLimit(name, uncounted{window, text})}
}

// stateName is the name of a limit as weir.New gives it; if the rule's name is invalid, which was reported,
// any name does.
func stateName(name string, j int, named bool) string {
	if !named {
		name = "rule"
	}
	if j == 0 {
		return name
	}
	return name + "." + strconv.Itoa(j+1)
}

// hasLeadingZero reports whether a number begins with 0, at the start of a text or after a space or a slash.
func hasLeadingZero(text string) bool {
	for i := 1; i < len(text); i++ {
		if text[i-1] == '0' && '0' <= text[i] && text[i] <= '9' &&
			(i == 1 || strings.IndexByte("/ \t\n\f\r", text[i-2]) >= 0) {
			return true
		}
	}
	return false
}

func (b *builder) limit(p place, name, prefix, text string, cost int64) *weir.Limit {
	if len(text) > bounds.Text {
		b.add(p, "limit %.80q has %d bytes; at most %d", text, len(text), bounds.Text)
		return nil
	}
	if hasLeadingZero(text) {
		b.add(p, "limit %.80q has a number that some readers take for octal: write it without a leading 0", text)
		return nil
	}
	spec, err := b.spec(prefix + text)
	if err != nil {
		b.add(p, "%s", sentence(err))
		return nil
	}
	if _, fair := spec.(weir.Fair); fair {
		b.add(p, "limit %q has no members in a rule; write the limit that is shared, and fair", text)
		return nil
	}
	limit, err := weir.NewLimit(name, spec)
	if err != nil {
		b.add(p, "%s", sentence(err))
		return nil
	}
	if cost > limit.Most() && cost <= weir.MaxUnits {
		b.add(p, "a cost of %d can never be granted by %s; at most %d", cost, limit, limit.Most())
	}
	b.owns(p, name)
	return limit
}

func (b *builder) spec(text string) (spec weir.Spec, err error) {
	if spec = b.specs[text]; spec == nil {
		spec, err = weir.ParseLimit(text)
		b.specs[text] = spec
	}
	return spec, err
}

// owns records that a rule has a limit of this name.
func (b *builder) owns(p place, name string) {
	if first, taken := b.states[name]; taken && first != p.rule {
		b.add(p, "the limit would be called %q as one of rules[%d] is, and share its state; rename a rule", name, first)
	} else if name != "rule" {
		b.states[name] = p.rule
	}
}

// sentence is an error of weir without its prefix.
func sentence(err error) string {
	var input *weir.InputError
	if errors.As(err, &input) {
		err = input
	}
	return strings.TrimPrefix(err.Error(), "weir: ")
}

// name checks a rule's name, and reports whether it is valid.
func (b *builder) name(i int, name string) bool {
	p := at(i, "name")
	if name == "" {
		if !b.has(p) {
			b.add(p, "name is missing, such as name: per-ip")
		}
		return false
	}
	if !plainName(name) {
		if _, err := weir.NewLimit(name, weir.PerSecond(1)); err != nil {
			b.add(p, "%s", sentence(err))
			return false
		}
	}
	if first, taken := b.states[name]; taken {
		b.add(p, "name %q is taken by a limit of rules[%d]; names are unique, because state lies under them", name,
			first)
		return false
	}
	b.states[name] = i
	return true
}

func (b *builder) label(i int, text string) string {
	if utf8.RuneCountInString(text) > bounds.Label || !utf8.ValidString(text) ||
		strings.ContainsFunc(text, unicode.IsControl) {
		b.add(at(i, "label"), "label is %.80q; allowed: at most %d characters, without control characters", text,
			bounds.Label)
	}
	return text
}

// describe checks the description and the labels.
func (b *builder) describe(i int, s *Spec) {
	text := s.Description
	control := func(c rune) bool { return c != '\n' && unicode.IsControl(c) }
	if len(text) > bounds.Description || !utf8.ValidString(text) || strings.ContainsFunc(text, control) {
		b.add(at(i, "description"), "description is %.80q, of %d bytes; allowed: at most %d, without control "+
			"characters other than newlines", text, len(text), bounds.Description)
	}
	if len(s.Labels) > bounds.Labels {
		b.add(at(i, "labels"), "labels has %d names; at most %d", len(s.Labels), bounds.Labels)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		p, value := at(i, "labels."+name), s.Labels[name]
		if value == "" && b.has(p) { // reported already
			continue
		}
		if !groupName.MatchString(name) || !groupName.MatchString(value) {
			b.add(p, "labels has %.80q: %.80q; allowed in both: 1 to 128 of a-z A-Z 0-9 and . _ -", name, value)
		}
	}
}

// plainName is a quick check that surely accepts only names that a limit may have.
func plainName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' &&
			c != '_' && c != '-' {
			return false
		}
	}
	return len(name) <= weir.MaxName
}

func (b *builder) key(p place, given []string, path string) (list []component) {
	if len(given) == 1 && b.keys[given[0]] != nil {
		return b.keys[given[0]]
	}
	if !b.count(p, len(given), bounds.Components) {
		return nil
	}
	for j, text := range given {
		p := place{p.rule, p.field, j}
		if text == "" && b.has(p) {
			continue
		}
		c, complaint := parseComponent(text, path)
		if complaint != "" {
			b.add(p, "key %.80q: %s", text, complaint)
			continue
		}
		if slices.ContainsFunc(list, func(other component) bool { return other.label == c.label }) {
			b.add(p, "key %.80q occurs twice", text)
		}
		c.inForm(b.set)
		if c.source == sourceEndpoint {
			c.endpoints = b.set.tellApart()
		}
		list = append(list, c)
	}
	if len(given) == 1 && len(list) == 1 && list[0].source != sourcePath {
		b.keys[given[0]] = list
	}
	return list
}

func tellsPathsApart(c component) bool { return c.endpoints != nil }

var hostName = regexp.MustCompile(`^(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)

// hosts checks the hosts of a match; they are in lower case afterwards.
func (b *builder) hosts(list place, given []string) (hosts []string) {
	b.count(list, len(given), bounds.Values)
	for j, host := range given {
		p := place{list.rule, list.field, j}
		lower := strings.ToLower(host)
		switch {
		case host == "" && b.has(p):
		case len(lower) > 255 || !hostName.MatchString(lower):
			b.add(p, "host %.80q; allowed: a name such as api.example.com, or *.example.com for all below it, in "+
				"ASCII and without port", host)
		case slices.Contains(hosts, lower):
			b.add(p, "host %.80q occurs twice", host)
		}
		hosts = append(hosts, lower)
	}
	return hosts
}

// path checks a path's pattern.
func (b *builder) path(p place, pattern string) {
	if pattern == "" {
		return
	}
	if pattern[0] != '/' || len(pattern) > bounds.Text || strings.ContainsAny(pattern, "?#\\\x00") {
		b.add(p, "path is %.80q; allowed: a path that begins with a slash, without ? and #; at most %d bytes",
			pattern, bounds.Text)
		return
	}
	var names []string
	for segment, last := range segments(pattern) {
		if complaint := segmentComplaint(segment, last); complaint != "" {
			b.add(p, "path is %.80q: segment %q %s", pattern, segment, complaint)
		}
		if !strings.HasPrefix(segment, "{") {
			continue
		}
		if slices.Contains(names, segment) {
			b.add(p, "path is %.80q: %s occurs twice in it", pattern, segment)
		}
		names = append(names, segment)
	}
}

var (
	dots        = regexp.MustCompile(`^\.\.?(;|$)`)
	escapedText = regexp.MustCompile(`^([^%]|%[0-9A-Fa-f]{2})*$`)
)

// segmentComplaint says why a segment cannot match as intended; "" if it can.
func segmentComplaint(segment string, last bool) string {
	name, opens := strings.CutPrefix(segment, "{")
	name, closes := strings.CutSuffix(name, "}")
	switch {
	case segment == "*" || segment == "**" && last || segment == "" && last:
		return ""
	case segment == "**":
		return "may only be the last"
	case segment == "" || strings.IndexByte(".%", segment[0]) >= 0 &&
		dots.MatchString(string(appendUnescaped(nil, segment))):
		return "never occurs: rules see the cleaned path"
	case strings.IndexByte(segment, ';') >= 0:
		return "has a parameter: rules see paths without ; and what follows it; leave it out, or write %3B for the " +
			"sign itself"
	case strings.IndexByte(segment, '%') >= 0 && !escapedText.MatchString(segment):
		return "has a % without two hexadecimal digits after it; %25 is the sign itself"
	case opens && closes && validAttribute(name):
		return ""
	case strings.ContainsAny(segment, "*{}"):
		return "is no pattern; allowed: *, {name}, a last **, or plain text"
	}
	return ""
}

var methodName = regexp.MustCompile("^[A-Z0-9!#$%&'*+.^_`|~-]{1,64}$")

// conditions are the conditions of a match, in the order that all branches of the tree share.
func (b *builder) conditions(p place, m *Match) (list []condition) {
	list = b.methods(list, at(p.rule, p.field+".method"), m.Method)
	list = b.standard(list, at(p.rule, p.field+".service"), sourceService, m.Service)
	list = b.standard(list, at(p.rule, p.field+".user"), sourceUser, m.User)
	list = b.standard(list, at(p.rule, p.field+".route"), sourceRoute, m.Route)
	if len(m.Client) > 0 {
		b.count(at(p.rule, p.field+".client"), len(m.Client), bounds.Values)
		list = append(list, condition{kind: sourceIP, networks: b.prefixes(at(p.rule, p.field+".client"), m.Client)})
	}
	list = b.located(list, at(p.rule, p.field+".country"), sourceCountry, m.Country, countryAllowed,
		IsCountry)
	list = b.located(list, at(p.rule, p.field+".asn"), sourceASN, m.ASN, asnAllowed, isASN)
	list = b.table(list, at(p.rule, p.field+".header"), sourceHeader, m.Header)
	list = b.table(list, at(p.rule, p.field+".query"), sourceQuery, m.Query)
	list = b.table(list, at(p.rule, p.field+".json"), sourceJSON, m.JSON)
	list = b.table(list, at(p.rule, p.field+".descriptor"), sourceDescriptor, m.Descriptor)
	list = b.descriptorKeys(list, at(p.rule, p.field+".descriptor_keys"), m.DescriptorKeys)
	for _, one := range mcpParts { // last, since the body is read for them
		list = b.standard(list, at(p.rule, p.field+"."+one.source.String()), one.source, *one.of(&m.MCP))
	}
	if len(list) > bounds.Conditions {
		b.add(p, "%d conditions; at most %d", len(list), bounds.Conditions)
	}
	return list
}

// methods adds a condition on the method.
func (b *builder) methods(list []condition, p place, given []string) []condition {
	for j, method := range given {
		p := place{p.rule, p.field, j}
		if upper := strings.ToUpper(method); upper != method {
			b.add(p, "method %.80q: methods are in capitals; did you mean %.80q?", method, upper)
		} else if !(method == "" && b.has(p)) && (method == "*" || !methodName.MatchString(method)) {
			b.add(p, "method %.80q; allowed: a method such as GET; leave it out for all", method)
		}
	}
	return b.standard(list, p, sourceMethod, given)
}

// standard adds a condition on an attribute that every request has.
func (b *builder) standard(list []condition, p place, kind source, values []string) []condition {
	if len(values) == 0 {
		return list
	}
	return append(list, condition{kind: kind, values: b.values(p, values)})
}

func (b *builder) table(list []condition, p place, kind source, table map[string][]string) []condition {
	if len(table) == 0 {
		return list
	}
	var added []condition
	for _, name := range slices.Sorted(maps.Keys(table)) {
		p := at(p.rule, p.field+"."+name)
		if !kind.named(name) {
			b.add(p, "%s %.80q: a name of 1 to 128 of a-z A-Z 0-9 and !#$&'*+-._`|~", p.field, name)
			continue
		}
		c := condition{kind: kind, name: name, values: b.values(p, table[name])}
		if kind == sourceHeader {
			c.name = canonical(name)
		}
		if slices.ContainsFunc(added, func(other condition) bool { return other.name == c.name }) {
			b.add(p, "%s occurs twice: names of headers ignore case", p.field)
		}
		added = append(added, c)
		if _, known := b.asking[name]; kind == sourceJSON && !known && b.asking != nil {
			b.asking[name] = p.rule
		}
		b.attributes[attribute{kind, c.name}] = true
	}
	if len(b.attributes) > bounds.Attributes && len(added) > 0 {
		b.add(p, "the rules up to here name over %d different headers, parameters and descriptors; name fewer",
			bounds.Attributes)
	}
	slices.SortFunc(added, func(a, c condition) int { return cmp.Compare(a.name, c.name) })
	return append(list, added...)
}

// values checks the values of a condition; an empty list stands for any value that is not empty.
func (b *builder) values(p place, given []string) []string {
	if len(given) == 0 {
		b.add(p, `%s has no values; "*" stands for any`, p.field)
	}
	b.count(p, len(given), bounds.Values)
	for j, value := range given {
		item := place{p.rule, p.field, j}
		switch {
		case value == "" && b.has(item):
		case value == "" || len(value) > bounds.Text:
			b.add(item, "%s has an empty value, or one over %d bytes", p.field, bounds.Text)
		case slices.Contains(given[:j], value):
			b.add(item, "%s has %.80q twice", p.field, value)
		case value == "*" && len(given) > 1:
			b.add(item, `%s: "*" stands for any value, so it stands alone`, p.field)
		}
	}
	if len(given) == 1 && given[0] == "*" {
		return nil
	}
	return given
}

// room reports whether the tree may grow by a rule: each combination of alternatives is a separate branch.
func (b *builder) room(p place, hosts []string, path string, conditions []condition) bool {
	ways := 1
	parts := len(conditions) + 1
	for _, c := range conditions {
		ways = min(bounds.Tree+1, ways*c.ways())
		parts += len(c.entries)
	}
	b.nodes += max(1, len(hosts)) * (strings.Count(path, "/") + 1 + ways*parts)
	if b.nodes > bounds.Tree {
		b.add(p, "the rules up to here can be met in too many ways (over %d): use fewer alternatives in "+
			"one rule, or fewer rules", bounds.Tree)
		return false
	}
	return true
}
