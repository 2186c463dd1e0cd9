package resp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/web"
)

// A question is the words after WEIR.DECIDE and the similar commands:
//
//	LIMIT name limit key [option …]   a claim of the caller's own; may be repeated. Options are COST n, FLOOR n,
//	                                  MEMBER name and WEIGHT n
//	RULES [COST n] [field value …]    the rules in force, for a request of these fields
//	TIMES n                           number of such requests
//	LEASE id                          of the concurrency limits
//	ID id, FOR time                   of a request that may be repeated
//
// Its strings are in the read buffer: they are valid until the command is answered.
type question struct {
	claims  []weir.Claim
	rules   bool
	cost    *int64 // for rules without a cost of their own
	times   int64
	lease   string
	id      string
	keep    time.Duration // of the id; 0: FOR did not say
	request rules.Request
	given   attributes

	units   int64 // cost points to it
	current int   // index of the claim that an option belongs to; −1: the rules
	chosen  uint8 // options that the claim has, as bits
}

// permission is the set of words that a command takes.
type permission uint8

const (
	claimsOnly    permission = iota
	claimsOfOne              // claims with MEMBER
	claimsAndMore            // claims with all options
	anything                 // and TIMES, LEASE, ID and FOR
)

// An option of a claim. COST is an option of RULES too.
type option struct {
	word string
	may  permission // needed by the command
	read func(*weir.Claim, [][]byte) error
}

var options = [...]option{
	{"cost", claimsAndMore, func(c *weir.Claim, words [][]byte) error { return number(words, &c.Cost) }},
	{"floor", claimsAndMore, func(c *weir.Claim, words [][]byte) error { return number(words, &c.Floor) }},
	{"member", claimsOfOne, readMember},
	{"weight", claimsAndMore, readWeight},
}

// optionOf is the index of an option by its word, or −1.
func optionOf(word []byte, may permission) int {
	for i := range options {
		if may >= options[i].may && is(word, options[i].word) {
			return i
		}
	}
	return -1
}

func (q *question) reset() {
	clear(q.claims)
	clear(q.given)
	*q = question{claims: q.claims[:0], given: q.given[:0], times: 1}
}

// asked is the request for the rules; nil without RULES.
func (q *question) asked() *rules.Request {
	if !q.rules {
		return nil
	}
	q.request.Attributes = &q.given
	return &q.request
}

func (q *question) read(c *conn, words [][]byte, may permission) error {
	for len(words) > 0 {
		n, err := q.clause(c, words, may)
		if err != nil {
			return err
		}
		words = words[n:]
	}
	if !q.rules && len(q.claims) == 0 {
		return errors.New("the question is empty: give LIMIT name limit key, or RULES and the fields of a request")
	}
	if q.keep == 0 {
		q.keep = web.UsualKeep
	} else if q.id == "" {
		return errors.New("FOR needs an ID, which is kept for that time")
	}
	if may >= claimsAndMore && q.rules && strings.EqualFold(q.request.Method, http.MethodPost) &&
		c.server.gate.Rules().ExpectsMessages(&q.request) {
		return errMessages
	}
	return nil
}

// errMessages refuses a request that would pass by the rules about its message, because they cannot see it.
var errMessages = errors.New("a rule reads a message of the Model Context Protocol from this request, and a question " +
	"has no body: ask POST /v1/decide of the HTTP API")

// clause reads the clause at the beginning, and returns its number of words.
func (q *question) clause(c *conn, words [][]byte, may permission) (n int, err error) {
	word := words[0]
	if i := optionOf(word, may); i >= 0 {
		return 2, q.option(i, words)
	}
	switch {
	case is(word, "limit"):
		return 4, q.limit(c, words)
	case is(word, "rules"):
		if q.rules {
			return 0, errors.New("RULES occurs twice")
		}
		q.rules, q.current, q.chosen = true, -1, 0
		return 1, nil
	case is(word, "times") && may >= anything:
		return 2, number(words, &q.times)
	case is(word, "lease") && may >= anything:
		return 2, q.readLease(words)
	case is(word, "id") && may >= anything:
		return 2, q.readID(words)
	case is(word, "for") && may >= anything:
		return 2, q.readKeep(words)
	case q.rules && q.current < 0:
		return 2, q.field(c, words)
	}
	more := [...]string{"", " or MEMBER", ", COST, FLOOR, MEMBER or WEIGHT",
		", COST, FLOOR, MEMBER, WEIGHT, TIMES, LEASE, ID or FOR"}[may]
	return 0, fmt.Errorf("syntax error: %.80q is not LIMIT, RULES%s", word, more)
}

// limit reads LIMIT name limit key.
func (q *question) limit(c *conn, words [][]byte) error {
	if len(words) < 4 {
		return errors.New("LIMIT needs a name, a limit and a key, such as LIMIT sms 5/1h user:42")
	}
	if len(q.claims) == weir.MaxClaims {
		return &weir.InputError{Field: "claims", Given: len(q.claims) + 1, Allowed: "1 to 32 of one decision"}
	}
	limit, err := c.named(words[1], words[2])
	if err != nil {
		return err
	}
	q.claims = append(q.claims, weir.Claim{Key: claimKey(words[3]), Limit: limit, Cost: 1})
	q.current, q.chosen = len(q.claims)-1, 0
	return nil
}

// named is the limit with a name and a text.
func (c *conn) named(name, spec []byte) (*weir.Limit, error) {
	words := c.key('l', name, spec)
	if limit := c.server.compiled(words); limit != nil {
		return limit, nil
	}
	parsed, err := weir.ParseLimit(string(spec))
	if err != nil {
		return nil, err
	}
	limit, err := weir.NewLimit(string(name), parsed)
	if err != nil {
		return nil, err
	}
	c.server.remember(words, limit)
	return limit, nil
}

// option reads an option of the preceding LIMIT or RULES.
func (q *question) option(i int, words [][]byte) error {
	name := strings.ToUpper(options[i].word)
	isCost := name == "COST"
	switch {
	case isCost && !q.rules && len(q.claims) == 0:
		return errors.New("COST has no limit before it: give it after LIMIT name limit key, or after RULES")
	case !isCost && (len(q.claims) == 0 || q.current < 0):
		return fmt.Errorf("%s has no limit before it: give it after LIMIT name limit key", name)
	case q.chosen&(1<<i) != 0:
		return fmt.Errorf("%s occurs twice for one limit", name)
	}
	q.chosen |= 1 << i
	if q.current >= 0 {
		return options[i].read(&q.claims[q.current], words)
	}
	q.cost = &q.units
	return number(words, q.cost)
}

func readMember(c *weir.Claim, words [][]byte) error {
	if len(words) < 2 {
		return errors.New("MEMBER needs a name: the member of the fair limit")
	}
	c.Member = claimKey(words[1])
	return nil
}

func readWeight(c *weir.Claim, words [][]byte) error {
	if err := number(words, &c.Weight); err != nil {
		return err
	}
	if c.Weight < 1 || c.Weight > weir.MaxWeight {
		return &weir.InputError{Field: "weight", Given: c.Weight, Allowed: fmt.Sprint("1 to ", weir.MaxWeight)}
	}
	return nil
}

func (q *question) readLease(words [][]byte) error {
	if len(words) < 2 || len(words[1]) == 0 || len(words[1]) > weir.MaxLease {
		return fmt.Errorf("LEASE needs an id of 1 to %d bytes", weir.MaxLease)
	}
	q.lease = string(words[1])
	return nil
}

func (q *question) readID(words [][]byte) error {
	if len(words) < 2 || len(words[1]) == 0 || len(words[1]) > weir.MaxLease {
		return fmt.Errorf("ID needs an id of 1 to %d bytes", weir.MaxLease)
	}
	q.id = string(words[1])
	return nil
}

func (q *question) readKeep(words [][]byte) error {
	if len(words) > 1 {
		if keep, ok := web.ReadKeep(string(words[1])); ok {
			q.keep = keep
			return nil
		}
	}
	return errors.New("FOR needs a time from 1s to 24h, such as 10m")
}

// number reads the word after the first.
func number(words [][]byte, into *int64) error {
	if len(words) < 2 {
		return fmt.Errorf("%s needs a number", strings.ToUpper(string(words[0])))
	}
	n, ok := integer(words[1])
	if !ok {
		field := strings.ToLower(string(words[0]))
		return &weir.InputError{Field: field, Given: string(words[1]), Allowed: "a whole number"}
	}
	*into = n
	return nil
}
