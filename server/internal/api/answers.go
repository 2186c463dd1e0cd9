package api

import (
	"fmt"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/server/internal/web"
)

// The types of the answers, for the OpenAPI document. Decisions are rendered by hand, because
// encoding/json would cost as much as the rest of the request.

type answer struct {
	Outcome      outcome       `json:"outcome" doc:"failed: a limit needs the store, which does not answer."`
	Allowed      bool          `json:"allowed" doc:"The outcome is passed."`
	Granted      int64         `json:"granted" min:"0" doc:"The number of grants out of times; 0 after a peek."`
	Degraded     bool          `json:"degraded,omitzero" doc:"The store did not answer: on_store_error decided."`
	Repeated     bool          `json:"repeated,omitzero" doc:"The ID was granted before: nothing is charged for it."`
	Remaining    int64         `json:"remaining,omitzero" min:"0" doc:"Units left of the deciding limit, if any."`
	RetryAfter   int64         `json:"retry_after_us,omitzero" min:"-1" doc:"Time to the next such grant; -1: never."`
	ResetAfter   int64         `json:"reset_after_us,omitzero" min:"0" doc:"Time until that limit is unused again."`
	Delay        int64         `json:"delay_us,omitzero" min:"0" doc:"Time that a granted caller should wait."`
	Reason       reason        `json:"reason"`
	Rule         string        `json:"rule,omitzero" doc:"The deciding rule, if one decided."`
	Name         string        `json:"name,omitzero" doc:"The name of the deciding limit."`
	Limit        string        `json:"limit,omitzero" doc:"The deciding limit."`
	RetrySeconds int64         `json:"retry_after,omitzero" min:"-1" doc:"How many seconds to wait; -1: never."`
	Message      string        `json:"message,omitzero" doc:"Of a refusal: the rule's message, if it has one."`
	Language     string        `json:"language,omitzero" doc:"Of the message, such as zh, if the rule states it."`
	RequestID    string        `json:"request_id,omitzero" doc:"Of a request that does not pass, in the audit log."`
	Checks       []check       `json:"checks" doc:"The state of each limit, after the grant."`
	Skipped      []skipped     `json:"skipped,omitzero" min:"1" doc:"Rules that matched and were not checked."`
	Lease        *Lease        `json:"lease,omitzero" doc:"The units that the caller holds, if any."`
	Response     *web.Response `json:"response,omitzero" doc:"With answer=http: what to send to the client."`
	Error        web.Problem   `json:"error,omitzero" doc:"In a batch: the mistake in this request."`
}

type reserveAnswer struct {
	answer
	Reservation *Reservation `json:"reservation,omitzero" doc:"Absent if there is nothing to settle."`
}

type batchAnswer struct {
	Answers []answer `json:"answers" doc:"In the order of the requests."`
}

type check struct {
	keyed
	Refused    *bool `json:"refused,omitzero" doc:"A shadow rule would have refused the request."`
	Local      bool  `json:"local,omitzero" doc:"This process counted alone: the store is down."`
	Cost       int64 `json:"cost" min:"0"`
	Remaining  int64 `json:"remaining" min:"0" doc:"Units left of this limit."`
	RetryAfter int64 `json:"retry_after_us" min:"-1" doc:"Time to one more grant of this cost; -1: never."`
	ResetAfter int64 `json:"reset_after_us" min:"0" doc:"Time until the limit is unused again."`
}

type keyed struct {
	Rule   string `json:"rule,omitzero" doc:"Absent for a claim of the caller."`
	Name   string `json:"name" doc:"The name of the limit."`
	Limit  string `json:"limit"`
	Key    string `json:"key,omitzero" doc:"After peek, dry_run and reset."`
	Shadow bool   `json:"shadow,omitzero" doc:"The rule is in shadow mode."`
}

type resetAnswer struct {
	Reset []keyed `json:"reset"`
}

type skipped struct {
	Rule string `json:"rule"`
	Why  string `json:"why" doc:"In words, such as off schedule."`
}

// A Lease is held by the caller.
type Lease struct {
	ID    string `json:"id"`
	Token string `json:"token" doc:"For renew and release."`
	TTL   int64  `json:"ttl_us" min:"1" doc:"Time until it expires unless it is renewed."`
}

// A Reservation is settled later.
type Reservation struct {
	Token string `json:"token" doc:"For settle."`
	TTL   int64  `json:"ttl_us" min:"1" doc:"Time in which it can be settled."`
}

type settled struct {
	Settled bool  `json:"settled"`
	Actual  int64 `json:"actual,omitzero" min:"0" doc:"As it was sent."`
	Status  int64 `json:"status,omitzero" min:"0" doc:"As it was sent."`
}

type renewed struct {
	Renewed bool  `json:"renewed"`
	TTL     int64 `json:"ttl_us" min:"1"`
}

type released struct {
	Released bool `json:"released"`
}

// Enumerated texts of the gate.
type (
	outcome gate.Outcome
	reason  gate.Reason
)

// Values implements web.Enum.
func (outcome) Values() []string { return between(gate.Passed, gate.Failed) }

// Values implements web.Enum.
func (reason) Values() []string {
	return append(between(gate.NoRule, gate.Canceled), gate.Repeated.String())
}

func between[T interface {
	~uint8
	fmt.Stringer
}](first, last T) (texts []string) {
	for v := first; v <= last; v++ {
		texts = append(texts, v.String())
	}
	return texts
}
