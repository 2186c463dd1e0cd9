package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
)

// A call is what one request needs. It is used again.
type call struct {
	document
	api   *api
	asks  []ask
	n     int // of asks, that are in use
	batch bool

	rule, key string // whose ban or candidate is meant

	token  string
	actual int64 // −1: not given

	verdict   *gate.Verdict // the one that is being answered: of verdicts
	verdicts  []*gate.Verdict
	questions []gate.Question
	own       []weir.Claim
	out       []byte
	status    int
	deny      int    // the status of refused and denied requests
	retry     string // Retry-After, if deny is the status
	kind      []string
	compact   bool // answer=compact
}

func (c *call) reset(a *api) {
	c.api, c.n, c.batch = a, 0, false
	c.token, c.actual, c.compact = "", -1, false
	clear(c.questions)
	c.verdict, c.questions = c.verdicts[0], c.questions[:0]
	c.rule, c.key = "", ""
	c.strings, c.out = c.strings[:0], c.out[:0]
	c.status, c.deny, c.retry, c.kind = http.StatusOK, http.StatusOK, "", typeJSON
}

// large reports whether it should rather not be kept.
func (c *call) large() bool {
	const most = 64 << 10
	return len(c.asks) > 16 || c.body.Cap() > most || cap(c.strings) > most || cap(c.out) > most
}

// last is the ask that is being read.
func (c *call) last() *ask {
	if c.n == 0 {
		return c.another()
	}
	return &c.asks[c.n-1]
}

func (c *call) another() *ask {
	if c.n == len(c.asks) {
		c.asks = append(c.asks, ask{})
	}
	c.n++
	a := &c.asks[c.n-1]
	a.reset()
	return a
}

func (c *call) lastClaim() *claim {
	a := c.last()
	return &a.claims[len(a.claims)-1]
}

// complete checks what can only be seen of an ask as a whole.
func (c *call) complete() error {
	a := c.last()
	switch {
	case !a.requested && len(a.claims) == 0:
		return invalid(c.path("request"), "missing", "a request, claims, or both", c.offset())
	case a.dryRun && a.times > 1:
		return invalid(c.path("times"), strconv.FormatInt(a.times, 10), "1 where dry_run is true", c.offset())
	case a.dryRun:
		a.times = 0
	}
	return nil
}

// at is an error of a value below where the reader stands.
func (c *call) at(member string, err error) error {
	var input *weir.InputError
	if !errors.As(err, &input) {
		return err
	}
	given := fmt.Sprint(input.Given)
	if text, ok := input.Given.(string); ok {
		given = quote(text)
	}
	if input.Field == "name" {
		member = "name"
	}
	field := c.path(member)
	if input.Field != "limit" && input.Field != "path" && input.Field != "name" {
		field += " (its " + input.Field + ")" // a number within the limit's text
	}
	return invalid(field, given, input.Allowed, c.offset())
}

func quote(text string) string { return strconv.Quote(text) }

// parameters reads the query.
func (c *call) parameters(op *operation, r *http.Request) error {
	switch {
	case r.URL.RawQuery == "":
		return nil
	case op.brief && r.URL.RawQuery == "answer=compact": // a url.Values would cost as much as the rest of the request
		c.compact = true
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("the query", quote(r.URL.RawQuery), "name=value", 0)
	}
	for name, values := range query {
		switch {
		case name == "deny_status" && op.answer:
			err = c.denyStatus(values)
		case name == "answer" && op.brief:
			err = c.brevity(values)
		default:
			err = invalid("the query", quote(name), op.parameters(), 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// parameters names what the query may have.
func (op *operation) parameters() string {
	switch {
	case op.brief:
		return "deny_status, answer"
	case op.answer:
		return "deny_status"
	}
	return "nothing"
}

func (c *call) denyStatus(values []string) error {
	status, err := strconv.Atoi(values[0])
	if err != nil || len(values) > 1 || status < 400 || status > 599 {
		return invalid("deny_status", quote(values[0]), "one number from 400 to 599", 0)
	}
	c.deny = status
	return nil
}

func (c *call) brevity(values []string) error {
	if len(values) > 1 || values[0] != "compact" && values[0] != "full" {
		return invalid("answer", quote(values[0]), "one of compact, full", 0)
	}
	c.compact = values[0] == "compact"
	return nil
}

// write sends the answer. Errors of writing are the connection's end.
func (c *call) write(w http.ResponseWriter) {
	h := w.Header()
	h["Content-Type"] = c.kind
	if c.retry != "" {
		h.Set("Retry-After", c.retry)
	}
	if c.status != http.StatusOK {
		h["Cache-Control"] = noStore
		w.WriteHeader(c.status)
	}
	w.Write(c.out)
}
