package redissource

import (
	"fmt"
	"strings"
)

// MaxProblems is how many mistakes an Error lists.
const MaxProblems = 100

// An Error is what is wrong with some of the rules, in the order of their keys.
type Error struct {
	Problems []Problem
	Omitted  int // how many more there are than the MaxProblems that are listed
}

// Error is one line for each problem.
func (e *Error) Error() string {
	var b strings.Builder
	for i := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Problems[i].String())
	}
	if e.Omitted > 0 {
		fmt.Fprintf(&b, "\nand %d more", e.Omitted)
	}
	return b.String()
}

// A Problem is one mistake in a hash or a message.
type Problem struct {
	Where   string // the key, or the message
	Field   string // "": all of it
	Message string // what it is, and what is allowed
	State   string // what becomes of the rule meanwhile
}

// String is the problem in a line. What came from Redis is quoted.
func (p *Problem) String() string {
	text := p.Where + ": "
	if p.Field != "" {
		text += p.Field + " "
	}
	text += p.Message
	if p.State != "" {
		text += "; " + p.State
	}
	return text
}

// What becomes of a rule that is wrong.
const (
	keptState   = "the last good version of this rule stays in force"
	absentState = "this rule is not in force"
	offState    = "this rule is disabled"
	// ignoredState is of a field, and not of the rule.
	ignoredState = "the rule is in force"
)

// add appends problems as long as there is room.
func (e *Error) add(list ...Problem) {
	for _, p := range list {
		if len(e.Problems) < MaxProblems {
			e.Problems = append(e.Problems, p)
		} else {
			e.Omitted++
		}
	}
}

// orNil is the error, or nil without problems.
func (e *Error) orNil() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}
