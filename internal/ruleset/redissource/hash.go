package redissource

import (
	"encoding/binary"
	"maps"
	"strings"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// DefaultPrefix is the default prefix of the keys of hashes.
const DefaultPrefix = "rate_limit_config:"

// A Hash is a rule in the form of its fields, or the problems of these.
type Hash struct {
	Rule     *rules.Spec
	Enabled  bool
	Problems []ruleset.Problem
	Ignored  []ruleset.Problem // fields without an effect in a valid rule

	key          string
	fields       map[string]string
	foreign      string // why the key holds no rule; "": it does
	kind, target string // of limitTypes
}

// parse reads the fields one by one. check finds conflicts between them.
func parse(prefix, key string, fields map[string]string) *Hash {
	h := &Hash{key: key, fields: fields}
	h.names()
	h.Rule = &rules.Spec{Name: nameOf(strings.TrimPrefix(key, prefix)), Label: h.label(), Description: h.description()}
	h.text("id")
	h.Enabled = h.flag("enabled")
	h.kind = h.word("limitType", limitTypes)
	h.target = h.text("limitTarget")
	if h.kind == global && !h.has("limitTarget") {
		h.target = anyTarget
	}
	h.limit()
	h.Rule.Mode = rules.Mode(h.choice("mode", "ENFORCE", "SHADOW"))
	h.Rule.OnStoreError = rules.StoreError(h.choice("onStoreError", "LOCAL", "ALLOW", "DENY"))
	if len(h.Problems) == 0 {
		h.Rule.Message = h.message()
		h.applies()
	}
	return h
}

// foreign is a key that holds no rule.
func foreign(key, why string) *Hash {
	return &Hash{key: key, foreign: why, Problems: []ruleset.Problem{{Where: ruleset.Quoted(key), Message: why}}}
}

// same reports whether the key has the same value.
func (h *Hash) same(other *Hash) bool {
	return h == other || h.foreign == other.foreign && maps.Equal(h.fields, other.fields)
}

// off reports whether the fields disable the rule, whatever mistakes the others have: disabling a
// harmful rule must not wait for corrections.
func (h *Hash) off() bool {
	if h.Enabled {
		return false
	}
	v, newer := h.fields["version"]
	return (strings.EqualFold(h.fields["enabled"], "false") || h.fields["enabled"] == "0") && (!newer || v == version)
}

// appendTo appends text that is equal for equal rules: everything that determines the rule.
func (h *Hash) appendTo(dst []byte) []byte {
	texts := []string{h.Rule.Name, h.Rule.Label, h.Rule.Description, h.kind, h.target, h.Rule.Limit[0],
		string(h.Rule.Mode), string(h.Rule.OnStoreError)}
	for _, t := range h.Rule.Message {
		texts = append(texts, t.Language, t.Text)
	}
	for _, text := range texts {
		dst = append(binary.AppendUvarint(dst, uint64(len(text))), text...)
	}
	return dst
}
