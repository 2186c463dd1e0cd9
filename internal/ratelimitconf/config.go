// Package ratelimitconf makes rules of the configuration of Envoy's rate limit service, envoyproxy/ratelimit: files, or
// resources that a control plane sends.
//
// That service walks a tree of descriptors, entry by entry and without going back: at each level it takes the
// descriptor with the entry's key and value, else the first with a fitting wildcard, else the one with the key alone.
// The limit is that of the descriptor that the last entry reaches. Each value of each entry is counted separately.
package ratelimitconf

import "github.com/weirproject/weir/rules"

// A Config is a file or a resource: the limits of a domain, or a part of them.
type Config struct {
	Name        string // of the file or the resource, in errors
	Domain      string
	Descriptors []Descriptor

	// Ignored are fields that stand where the service reads no such field, such as shadow_mode within rate_limit.
	// They have no effect there, and have none here.
	Ignored []rules.Problem

	lines []string // of the file, for errors
}

// A Descriptor is a node of the tree.
type Descriptor struct {
	Key         string
	Value       string // a text, or one with wildcards: each * stands for any text; "": any value
	Limit       *Limit // nil: a descriptor that ends here is not limited
	Descriptors []Descriptor

	ShadowMode     bool
	QuotaMode      bool
	ShareThreshold bool // the values of a wildcard are counted together
	DetailedMetric bool
	ValueToMetric  bool
	Metadata       map[string]any // as encoding/json decodes an object; nil: none

	Mark Mark
}

// A Limit is the rate limit of a descriptor.
type Limit struct {
	Unit            string // second, minute, hour, day, week, month or year, in any case; "" of an unlimited one
	RequestsPerUnit uint32 // 0: every request is over the limit
	UnitMultiplier  uint32 // the window is so many units; 0: 1
	Unlimited       bool
	Name            string   // by which others replace it; "": none
	Replaces        []string // names of limits that are not evaluated in a request that this one applies to

	Mark Mark
}

// A Mark is a place in a file. The zero Mark is no place.
type Mark struct{ Line, Column int } // from 1
