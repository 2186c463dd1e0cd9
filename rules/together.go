package rules

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirproject/weir/internal/bounds"
)

// together has the fields of a rule that are about several requests of one call.
type together struct {
	alias    string
	replaces []string
	quota    bool
	metadata map[string]any
}

// alone reports whether the rule applies to each request of a call independently of the others.
func (t *together) alone() bool { return t.alias == "" && len(t.replaces) == 0 && !t.quota }

// Alias is the name by which other rules replace the rule; it may be empty.
func (r *Rule) Alias() string { return r.together.alias }

// Replaces are the aliases of the rules that this rule replaces. Where it applies to a request, they apply neither to
// that request nor to the others of its call. Do not change the slice.
func (r *Rule) Replaces() []string { return r.together.replaces }

// Quota reports whether all requests of a call that have such a rule pass as soon as one of them passes.
func (r *Rule) Quota() bool { return r.together.quota }

// Metadata is for the answer of a front end; it may be nil. Do not change it.
func (r *Rule) Metadata() map[string]any { return r.together.metadata }

// Unlimited reports whether the rule grants every request that no list denies. Such a rule has no counts.
func (r *Rule) Unlimited() bool { return r.unlimited }

// Replaces reports whether a rule replaces others, so that the requests of a call depend on each other.
func (s *Set) Replaces() bool { return s.replaces }

// Serves reports whether a rule matches requests of the service, or of any service.
func (s *Set) Serves(service string) bool { return s.served[service] || s.served[""] }

// serve records the services that a rule matches; "" is any.
func (s *Set) serve(m *Match) {
	if len(m.Service) == 0 || slices.Contains(m.Service, "*") {
		s.served[""] = true
	}
	for _, service := range m.Service {
		s.served[service] = true
	}
}

// together checks the fields about the requests of a call.
func (b *builder) together(i int, s *Spec) together {
	t := together{alias: s.Alias, replaces: slices.Clone(s.Replaces), quota: s.Quota, metadata: s.Metadata}
	b.alias(at(i, "alias"), s.Alias)
	b.count(at(i, "replaces"), len(s.Replaces), bounds.Values)
	for j, alias := range s.Replaces {
		p := place{i, "replaces", j}
		switch {
		case alias == "" && !b.has(p):
			b.add(p, "%s has an empty value; allowed: aliases of rules", p)
		case alias != "" && alias == s.Alias:
			b.add(p, "replaces has the rule's own alias %.80q; allowed: aliases of other rules", alias)
		default:
			b.alias(p, alias)
		}
	}
	b.set.replaces = b.set.replaces || s.IsEnabled() && len(s.Replaces) > 0
	text, err := json.Marshal(s.Metadata)
	if err != nil {
		b.add(at(i, "metadata"), "metadata has a value that JSON cannot express: %v", err)
	} else if len(text) > bounds.Metadata {
		b.add(at(i, "metadata"), "metadata has %d bytes as JSON; at most %d", len(text), bounds.Metadata)
	}
	return t
}

func (b *builder) alias(p place, alias string) {
	if !utf8.ValidString(alias) || strings.ContainsFunc(alias, unicode.IsControl) || len(alias) > bounds.Text {
		b.add(p, "%s is %.80q; allowed: up to %d bytes of UTF-8 without control characters", p.field, alias,
			bounds.Text)
	}
}
