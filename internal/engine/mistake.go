package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// A Mistake is one mistake in rules.
type Mistake struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// Where is the place of the mistake as attributes of a log line, in the form that editors find.
func (m *Mistake) Where(source string) (args []any) {
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
func Mistakes(err error) (list []Mistake) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			list = append(list, Mistakes(one)...)
		}
		return list
	}
	var text *rules.Error
	var redis *ruleset.Error
	switch {
	case err == nil:
	case errors.As(err, &text):
		for _, p := range text.Problems {
			list = append(list, Mistake{p.File, p.Line, p.Column, p.Field, p.Message})
		}
		list = append(list, omitted(text.Omitted)...)
	case errors.As(err, &redis):
		for i := range redis.Problems {
			list = append(list, Mistake{Message: redis.Problems[i].String()})
		}
		list = append(list, omitted(redis.Omitted)...)
	default:
		list = append(list, Mistake{Message: Message(err)})
	}
	return list
}

func omitted(n int) []Mistake {
	if n == 0 {
		return nil
	}
	return []Mistake{{Message: fmt.Sprintf("and %d more", n)}}
}

// Message is the text of an error, without the name of the package that returned it.
func Message(err error) string {
	return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "weir: "), ": weir: ", ": ")
}
