package rules

import (
	"cmp"
	"slices"

	"github.com/weirproject/weir"
)

// A Rule is a checked Spec. It is immutable.
type Rule struct {
	set           *Set
	index         int
	name          string
	label         string
	disabled      bool
	preset        []string
	components    []component
	entries       []entry  // of its match
	fixed         []string // values of components of which its match leaves one, "" for the others; nil: none
	onMissing     OnMissing
	limits        []*weir.Limit
	overrides     overrides
	cost          cost
	unit          Unit
	metered       bool     // see Metered
	reserve       *reserve // nil: all requests are of one class
	fair          *fair    // nil: the limits have no members
	asksUsage     bool     // see Addition
	passed        sum      // see Passed
	stream        *stream  // nil: the response is not charged while it is streamed
	countIf       *countIf // nil: every request counts
	full          bool     // see ChargeFull
	byPath        bool     // see ByPath
	described     bool     // its match or key names a descriptor
	schedule      []window
	lists         lists
	mode          Mode
	ids           *IDs
	bans          *Bans
	candidate     *CompiledCandidate
	percent       uint64 // of keys for which it is enforced
	lease         int    // percent of what remains
	holdUntilDone bool
	ceiling       float64
	onStoreError  StoreError
	response      *response
	message       *message // nil: weir's own
	level         string
	group         int // 0: none
	groupName     string
	rank          uint64
	reads         []reading
	closed        bool // it denies every request
	unlimited     bool // it grants every request
	together      together
	unprovided    []component // see Unprovided
	filter        *filter     // nil: the tree decides
	everywhere    bool        // the filter is evaluated for every request
	geo           geo         // what it needs to know of clients
	claims        int         // upper bound of the claims that it adds to a decision
}

// Name is the name of the rule.
func (r *Rule) Name() string { return r.name }

// Label is a text for people; "" if the file has no label.
func (r *Rule) Label() string { return r.label }

// Enabled reports whether the rule applies to requests. A disabled rule is in Set.Rules, and no request matches it.
func (r *Rule) Enabled() bool { return !r.disabled }

// Index is the rule's place in its file, from 0.
func (r *Rule) Index() int { return r.index }

// ByPath reports whether the rule's key, or its candidate's key, has the component endpoint, so that requests without a
// route are counted by their paths: see Set.Endpoints.
func (r *Rule) ByPath() bool { return r.byPath }

// Limits are the rule's, in order, with the names that weir.New gives: name, name.2 and so on. That of limit: none has
// the text "none", and no request is charged to it. Do not change the slice.
func (r *Rule) Limits() []*weir.Limit { return r.limits }

// OnMissing is the treatment of a request without a key: AppendKey is not ok.
func (r *Rule) OnMissing() OnMissing { return r.onMissing }

// Mode is the rule's mode.
func (r *Rule) Mode() Mode { return r.mode }

// OnStoreError is the treatment of a request while the store does not answer.
func (r *Rule) OnStoreError() StoreError { return r.onStoreError }

func (b *builder) rule(i int, s *Spec, rule *Rule) {
	rule.onMissing = word(b, at(i, "on_missing"), s.OnMissing, onMissing)
	rule.mode = word(b, at(i, "mode"), s.Mode, modes)
	rule.onStoreError = word(b, at(i, "on_store_error"), s.OnStoreError, onStoreError)
	word(b, at(i, "preset"), s.Preset, presetWords)
	rule.cost, rule.reserve, rule.fair = b.cost(i, s), b.reserve(i, s), b.fair(i, s)
	rule.unit, rule.metered = b.unit(i, s.Unit, &rule.cost)
	b.streams(i, s, rule)
	rule.full = word(b, at(i, "charge"), s.Charge, charges) == ChargeFull
	rule.schedule, rule.lists = b.schedule(i, s.Schedule), b.lists(i, s.Allow, s.Deny, s.Match.Path)
	rule.response = b.usual
	if s.Response != (Response{}) {
		rule.response = b.over(i, b.response(i, &s.Response), b.fileResponse).complete()
	}
	named := b.name(i, s.Name)
	rule.label = b.label(i, s.Label)
	b.describe(i, s)
	rule.together = b.together(i, s)
	rule.disabled = !s.IsEnabled()
	b.algorithm(at(i, "algorithm"), s.Algorithm)
	rule.countIf = b.countIf(i, s)
	rule.closed, rule.unlimited = slices.Equal(s.Limit, []string{closed}), slices.Equal(s.Limit, []string{unlimited})
	if !s.limited() {
		rule.limits = uncountedLimit(stateName(s.Name, 0, named), s.Limit[0])
	} else {
		rule.limits = b.limits(at(i, "limit"), s.Limit, s, rule, named)
	}
	rule.components = b.key(at(i, "key"), s.Key, s.Match.Path)
	b.override(i, s, rule, named)
	rule.ids = b.once(i, s)
	rule.percent = b.percent(i, s)
	rule.bans = b.bans(i, s, named)
	rule.candidate = b.candidate(i, s, rule, named)
	rule.byPath = slices.ContainsFunc(rule.components, tellsPathsApart) || rule.candidate != nil &&
		rule.candidate.keyed != nil && slices.ContainsFunc(rule.candidate.keyed.components, tellsPathsApart)
	rule.message, rule.level = cmp.Or(b.message(i, s.Message), b.fileMessage), levelOf(rule.components, &s.Match)
	b.windowed(i, rule)
	rule.reads, rule.unprovided = b.reads(s, rule), unprovided(s, rule)
	rule.holdUntilDone = b.holdUntil(i, s, rule)
	rule.lease, rule.ceiling = b.lease(i, s, rule), b.ceiling(i, s)
	rule.entries = entriesOf(s.Match.DescriptorKeys)
	rule.fixed = rule.fixedBy(&s.Match)
	ways := b.ways(i, s, rule)
	rule.described = slices.ContainsFunc(s.matches(), func(m Match) bool { return m.describes() }) ||
		slices.ContainsFunc(rule.components, component.describes)
	rule.geo = rule.located(s)
	b.placed(i, s, rule)
	b.group(i, s, rule)
	b.set.rules = append(b.set.rules, rule)
	if rule.disabled { // it keeps its index and its state, and no request finds it
		return
	}
	b.set.geo |= rule.geo
	b.set.serve(&s.Match)
	for _, w := range ways {
		if len(b.problems) == 0 && b.room(at(i, "match"), w.hosts, w.path, w.conditions) {
			b.treeBuilder.insert(rule, w.hosts, w.path, w.conditions)
		}
	}
}
