package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// Place is the place of a mistake as attributes of a log line, in the form that editors find.
func Place(m *rules.Problem, source string) (args []any) {
	if source != "" {
		args = append(args, "source", source)
	}
	switch {
	case m.Line > 0:
		args = append(args, "at", fmt.Sprintf("%s:%d:%d", m.File, m.Line, m.Column))
	case m.File != "" && m.Field != "":
		args = append(args, "at", m.File+": "+m.Field)
	}
	return args
}

// Mistakes are the mistakes that an error lists, or the error itself.
func Mistakes(err error) (list []rules.Problem) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			list = append(list, Mistakes(one)...)
		}
		return list
	}
	var text *rules.Error
	var redis *ruleset.Error
	omitted := 0
	switch {
	case err == nil:
	case errors.As(err, &text):
		list, omitted = slices.Clone(text.Problems), text.Omitted
	case errors.As(err, &redis):
		for i := range redis.Problems {
			list = append(list, rules.Problem{Message: redis.Problems[i].String()})
		}
		omitted = redis.Omitted
	default:
		list = append(list, rules.Problem{Message: Message(err)})
	}
	if omitted > 0 {
		list = append(list, rules.Problem{Message: fmt.Sprintf("and %d more", omitted)})
	}
	return list
}

// Message is the text of an error, without the name of the package that returned it.
func Message(err error) string {
	return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "weir: "), ": weir: ", ": ")
}
