package admin

import (
	"time"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/rules"
)

// The types of the bodies and answers, in JSON.

// A Rule is one of the server.
type Rule struct {
	Name     string    `json:"name"`
	Label    string    `json:"label,omitzero" doc:"A name for people."`
	From     string    `json:"from" doc:"The source: ledger, or another."`
	InForce  bool      `json:"in_force" doc:"Requests are decided by this version."`
	Enabled  bool      `json:"enabled" doc:"Otherwise it applies to no request."`
	Revision int64     `json:"revision,omitzero" doc:"In the ledger; the ETag for If-Match."`
	Who      string    `json:"who,omitzero"`
	Why      string    `json:"why,omitzero"`
	When     time.Time `json:"when,omitzero"`
	Reverts  time.Time `json:"reverts,omitzero" doc:"By the ledger's clock, unless it is confirmed."`
	YAML     string    `json:"yaml,omitzero" doc:"Of one rule: its author's text; of one from elsewhere, its fields."`
	// Of this revision, or of the rule in force if it is not from the ledger.
	Limit     []string   `json:"limit,omitzero"`
	Algorithm string     `json:"algorithm,omitzero" doc:"Of all its limits, if the rule has it once."`
	Mode      rules.Mode `json:"mode,omitzero" doc:"enforce or shadow, if the rule has it."`

	Description string            `json:"description,omitzero"`
	Labels      map[string]string `json:"labels,omitzero"`
}

// Rules are all of the server.
type Rules struct {
	Revision int64  `json:"revision" doc:"Of the ledger."`
	Rules    []Rule `json:"rules"`
}

// A Change is the difference between two versions of a rule.
type Change struct {
	Rule   string   `json:"rule" doc:"Empty: the fields of the file."`
	Kind   string   `json:"kind" enum:"changed|added|removed|renamed"`
	Fields []string `json:"fields,omitzero"`
	// Values are the values of fields that are numbers or words.
	Values []ruleset.Value `json:"values,omitzero"`
	Was    string          `json:"was,omitzero" doc:"The old name."`
	Counts string          `json:"counts,omitzero" enum:"kept|anew"`
	Why    string          `json:"why,omitzero" doc:"Why counts start anew."`
	Text   string          `json:"text" doc:"All of it as one line."`
}

// Written is the result of a write.
type Written struct {
	Name     string   `json:"name"`
	Revision int64    `json:"revision,omitzero" doc:"Absent: nothing was written."`
	Changes  []Change `json:"changes"`
	InForce  bool     `json:"in_force" doc:"On this server."`
	Waiting  string   `json:"waiting,omitzero" doc:"Why it is not in force."`

	Reverts time.Time `json:"reverts,omitzero" doc:"To what it was before, unless it is confirmed."`
}

// A NewException is the body of a request for an exception.
type NewException struct {
	Kind   rules.ExceptionKind `json:"kind" enum:"override|block|allow"`
	Rule   string              `json:"rule,omitzero" doc:"Needed for an override; the default is all rules."`
	By     string              `json:"by,omitzero" doc:"The component: user or header.X-Api-Key; default client.ip."`
	Values []string            `json:"values" min:"1" max:"8" doc:"Override: a value for each component of the key."`
	Limit  []string            `json:"limit,omitzero" doc:"Of an override, as a rule's."`
	For    string              `json:"for" doc:"A duration from 1s to 8784h or 366d, such as 30m."`
	Why    string              `json:"why,omitzero"`
}

// An Exception is one of the server.
type Exception struct {
	ID       string              `json:"id"`
	Kind     rules.ExceptionKind `json:"kind" enum:"override|block|allow"`
	Rule     string              `json:"rule,omitzero"`
	By       string              `json:"by,omitzero"`
	Values   []string            `json:"values"`
	Limit    []string            `json:"limit,omitzero"`
	Until    time.Time           `json:"until" doc:"By the ledger's clock."`
	Left     string              `json:"left" doc:"The remaining time."`
	Revision int64               `json:"revision"`
	Who      string              `json:"who"`
	Why      string              `json:"why,omitzero"`
	When     time.Time           `json:"when"`
	InForce  bool                `json:"in_force"`
	Waiting  string              `json:"waiting,omitzero" doc:"Why it is not in force."`
}

// Exceptions are all of the server.
type Exceptions struct {
	Exceptions []Exception `json:"exceptions"`
}

// An Entry is one change of the history.
type Entry struct {
	Revision  int64      `json:"revision" doc:"0: the rule of another source that the next change went before."`
	Name      string     `json:"name" doc:"Of the rule; of an exception its ID."`
	What      string     `json:"what"`
	Who       string     `json:"who"`
	Why       string     `json:"why,omitzero"`
	When      time.Time  `json:"when"`
	Changes   []Change   `json:"changes"`
	YAML      string     `json:"yaml,omitzero" doc:"The rule at that time."`
	Reverts   time.Time  `json:"reverts,omitzero" doc:"The change was to be taken back then unless it was confirmed."`
	Exception *Exception `json:"exception,omitzero" doc:"The exception at that time."`
	Key       string     `json:"key,omitzero" doc:"That was reset, or whose ban was lifted."`
}

// A History has the newest change first.
type History struct {
	History []Entry `json:"history"`
}

// Reloaded describes the rules in force.
type Reloaded struct {
	Revision string           `json:"revision" doc:"Of all sources together."`
	Rules    int              `json:"rules" doc:"The number of rules."`
	Sources  []ReloadedSource `json:"sources"`
}

// A ReloadedSource is a source of rules.
type ReloadedSource struct {
	Name     string `json:"name"`
	Revision string `json:"revision"`
	Rules    int    `json:"rules"`
}

// Services are the services and routes of a gateway.
type Services struct {
	Services []servermetrics.Service `json:"services"`
	Routes   []servermetrics.Route   `json:"routes"`
}

// Restored lists the entries that were written back.
type Restored struct {
	Restored []string `json:"restored" doc:"Names of rules, and IDs of exceptions."`
	Revision int64    `json:"revision" doc:"Of the ledger."`
	Lost     int64    `json:"lost" doc:"The last revision that was lost."`
}

// A RuleReset is the result of a reset of some keys of a rule.
type RuleReset struct {
	Rule string `json:"rule"`
	Keys int    `json:"keys" doc:"How many counts were deleted: one for each limit of a key."`
	Next string `json:"next,omitzero" doc:"The cursor of the next request; absent after the last key."`
}

// A Ban is one in force.
type Ban struct {
	Rule   string    `json:"rule"`
	Key    string    `json:"key"`
	From   time.Time `json:"from" doc:"By the store's clock."`
	Until  time.Time `json:"until" doc:"By the store's clock."`
	Length string    `json:"length"`
	Local  bool      `json:"local,omitzero" doc:"Only on this server: the store did not answer."`
}

// Bans are up to 1,000.
type Bans struct {
	Bans []Ban `json:"bans"`
}

// Lifted is the result of lifting a ban.
type Lifted struct {
	Rule   string `json:"rule"`
	Key    string `json:"key"`
	Banned bool   `json:"was_banned" doc:"false: only the count towards a ban was reset."`
}

// A Comparison counts the requests to this process that a rule and its candidate decided.
type Comparison struct {
	Rule         string       `json:"rule"`
	Limit        []string     `json:"limit"`
	Candidate    []string     `json:"candidate"`
	CandidateKey []string     `json:"candidate_key,omitzero" doc:"If it differs from the rule's."`
	Since        time.Time    `json:"since"`
	BothGrant    int64        `json:"both_grant"`
	NewlyRefused int64        `json:"newly_refused" doc:"Granted by the rule, refused by the candidate."`
	NewlyGranted int64        `json:"newly_granted" doc:"Refused by the rule, granted by the candidate."`
	BothRefuse   int64        `json:"both_refuse"`
	RefusedKeys  []ChangedKey `json:"refused_keys" max:"100" doc:"The keys with the most newly refused requests."`
	GrantedKeys  []ChangedKey `json:"granted_keys" max:"100" doc:"The keys with the most newly granted requests."`
}

// A ChangedKey is a key with the requests that a candidate decides otherwise.
type ChangedKey struct {
	Key   string `json:"key"`
	Count int64  `json:"count"`
	Over  int64  `json:"over" doc:"The maximum error of count."`
}
