package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/server/internal/web"
)

// A call is the state of one request. It is reused.
type call struct {
	document
	api   *api
	asks  []ask
	n     int // number of asks in use
	batch bool

	token    string
	actual   int64          // −1: not given
	response int64          // the status of one; −1: not given
	answered jsontext.Value // its body; nil: not given

	verdict   *gate.Verdict // one of verdicts: the one being rendered
	verdicts  []*gate.Verdict
	questions []gate.Question
	own       []weir.Claim
	out       []byte
	status    int
	deny      int    // the status of refused and denied requests
	retry     string // Retry-After, if deny is the status
	responds  bool   // answers have the response to the client
}

func (c *call) reset(a *api) {
	c.api, c.n, c.batch = a, 0, false
	c.token, c.actual, c.response, c.answered, c.responds = "", -1, -1, nil, false
	clear(c.questions)
	c.verdict, c.questions = c.verdicts[0], c.questions[:0]
	c.strings, c.out = c.strings[:0], c.out[:0]
	c.status, c.deny, c.retry = http.StatusOK, http.StatusOK, ""
}

// large reports whether its memory should not be kept.
func (c *call) large() bool {
	const most = 64 << 10
	return len(c.asks) > 16 || c.body.Cap() > most || cap(c.strings) > most || cap(c.out) > most
}

// last is the ask being read.
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

// invalid refuses the value of a member where the reader stands; "" is the value itself.
func (c *call) invalid(member, value, allowed string) error {
	return web.Invalid(c.path(member), value, allowed, c.offset())
}

// at adds the place of a member to an error of its value.
func (c *call) at(member string, err error) error {
	var input *weir.InputError
	if !errors.As(err, &input) {
		return err
	}
	given := fmt.Sprint(input.Given)
	if text, ok := input.Given.(string); ok {
		given = strconv.Quote(text)
	}
	if input.Field == "name" {
		member = "name"
	}
	field := c.path(member)
	if input.Field != "limit" && input.Field != "path" && input.Field != "name" {
		field += " (its " + input.Field + ")" // a number in the text of the limit
	}
	return web.Invalid(field, given, input.Allowed, c.offset())
}

// parameters reads the query.
func (c *call) parameters(op *operation, r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return web.Invalid("the query", strconv.Quote(r.URL.RawQuery), "name=value", 0)
	}
	for name, values := range query {
		switch {
		case name == "answer" && op.decides():
			if c.responds = len(values) == 1 && values[0] == "http"; !c.responds {
				return web.Invalid(name, strconv.Quote(values[0]), "http", 0)
			}
			continue
		case name != "deny_status" || !op.decides():
			return web.Invalid("the query", strconv.Quote(name), op.parameters(), 0)
		}
		c.deny, err = strconv.Atoi(values[0])
		if err != nil || len(values) > 1 || c.deny < 400 || c.deny > 599 {
			return web.Invalid(name, strconv.Quote(values[0]), "one number from 400 to 599", 0)
		}
	}
	return nil
}

// parameters names the parameters of the query.
func (op *operation) parameters() string {
	if op.decides() {
		return "answer, deny_status"
	}
	return "nothing"
}

// Header values that all answers share. net/http does not write to them.
var (
	typeJSON = []string{"application/json"}
	noStore  = []string{"no-store"}
)

// write sends the answer. An error means that the connection is gone.
func (c *call) write(w http.ResponseWriter) {
	h := w.Header()
	h["Content-Type"] = typeJSON
	if c.retry != "" {
		h.Set("Retry-After", c.retry)
	}
	if c.status != http.StatusOK {
		h["Cache-Control"] = noStore
		w.WriteHeader(c.status)
	}
	w.Write(c.out)
}
