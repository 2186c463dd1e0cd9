package ratelimitconf_test

import (
	"errors"
	"testing"

	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/rules"
)

// FuzzParse: any text is an error with a line, or becomes rules that compile, or are refused with a line.
func FuzzParse(f *testing.F) {
	for _, shape := range shapes {
		f.Add([]byte(shape.config))
	}
	for text := range mistakes {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		config, err := ratelimitconf.Parse("f", text)
		if err != nil {
			placed(t, err)
			return
		}
		file, err := ratelimitconf.Compile([]*ratelimitconf.Config{config}, ratelimitconf.Options{Merge: true})
		if err != nil {
			placed(t, err)
			return
		}
		if _, err := rules.Compile(file); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	})
}

// placed fails the test if an error has a mistake without a line.
func placed(t *testing.T, err error) {
	t.Helper()
	var list *rules.Error
	if !errors.As(err, &list) || len(list.Problems) == 0 {
		t.Fatal(err)
	}
	for _, p := range list.Problems {
		if p.File != "f" || p.Line < 1 || p.Message == "" {
			t.Fatalf("%+v", p)
		}
	}
}
