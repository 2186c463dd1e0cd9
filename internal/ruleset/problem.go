package ruleset

import (
	"fmt"
	"strings"
)

// MaxProblems is the number of mistakes that an Error lists.
const MaxProblems = 100

// An Error lists mistakes in some of the rules, in the order of their keys.
type Error struct {
	Problems []Problem
	Omitted  int // the number of problems over MaxProblems
}

// Error returns one line for each problem.
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
	Message string // the mistake, and the allowed values
	State   string // the effect on the rule
}

// String returns the problem as one line. Text from Redis is quoted.
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

// The effects of a mistake on a rule.
const (
	KeptState   = "the last good version of this rule stays in force"
	AbsentState = "this rule is not in force"
	OffState    = "this rule is disabled"
	// IgnoredState is for a mistake that does not affect the rule.
	IgnoredState = "the rule is in force"
)

// Add appends problems up to the maximum.
func (e *Error) Add(list ...Problem) {
	for _, p := range list {
		if len(e.Problems) < MaxProblems {
			e.Problems = append(e.Problems, p)
		} else {
			e.Omitted++
		}
	}
}

// OrNil returns the error, or nil without problems.
func (e *Error) OrNil() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// Quoted returns a key as it is, or quoted if it cannot be printed.
func Quoted(key string) string {
	if q := fmt.Sprintf("%.200q", key); q[1:len(q)-1] != key {
		return q
	}
	return key
}
