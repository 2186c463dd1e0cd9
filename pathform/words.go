package pathform

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirproject/weir"
)

type word struct {
	text string
	of   func(*Form) *bool
}

// words are the options of a Form in rule files and flags.
var words = []word{
	{"drop-trailing-slash", func(f *Form) *bool { return &f.DropTrailingSlash }},
	{"ignore-case", func(f *Form) *bool { return &f.IgnoreCase }},
	{"refuse-parameters", func(f *Form) *bool { return &f.RefuseParameters }},
	{"allow-encoded-slash", func(f *Form) *bool { return &f.AllowEncodedSlash }},
	{"allow-backslash", func(f *Form) *bool { return &f.AllowBackslash }},
	{"allow-nul", func(f *Form) *bool { return &f.AllowNUL }},
}

// Strict is the word of the zero Form.
const Strict = "strict"

// Words are the words that Parse reads.
func Words() []string {
	var list []string
	for _, w := range words {
		list = append(list, w.text)
	}
	return append(list, Strict)
}

// Parse reads words such as ignore-case. No words, or strict alone, are the zero Form. The error
// is a *weir.InputError about the first unknown word.
func Parse(given []string) (f Form, err error) {
	for _, text := range given {
		trimmed := strings.TrimSpace(text)
		i := slices.IndexFunc(words, func(w word) bool { return w.text == trimmed })
		switch {
		case i >= 0:
			*words[i].of(&f) = true
		case trimmed != Strict || len(given) > 1:
			return f, &weir.InputError{Field: "path form", Given: fmt.Sprintf("%.80q", text),
				Allowed: strings.Join(Words(), ", ") + "; strict stands alone"}
		}
	}
	return f, nil
}

// String is the words of the form, with commas.
func (f Form) String() string {
	var list []string
	for _, w := range words {
		if *w.of(&f) {
			list = append(list, w.text)
		}
	}
	if len(list) == 0 {
		return Strict
	}
	return strings.Join(list, ",")
}
