package ruleimport

import (
	"fmt"
	"io"
	"os"

	"github.com/weirproject/weir/internal/program"
)

// Main is a program that imports the files of its arguments with a reader of another format: rules go to the standard
// output, and settings without an equal to the standard error.
func Main(name string, read func(*Job)) {
	if len(os.Args) < 2 {
		fmt.Fprintf(os.Stderr, "name a file, such as: %s FILE; - is the standard input\n", name)
		os.Exit(program.Usage)
	}
	code, err := run(name, read, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = program.Usage
	}
	os.Exit(code)
}

func run(by string, read func(*Job), names []string) (code int, err error) {
	var files []Text
	for _, name := range names {
		in, shown := os.Stdin, "stdin"
		if name != "-" {
			if in, err = os.Open(name); err != nil {
				return 0, err
			}
			shown = name
		}
		data, err := io.ReadAll(io.LimitReader(in, maxText+1))
		in.Close()
		if err != nil {
			return 0, err
		}
		files = append(files, Text{shown, data})
	}
	result, err := Read(by, read, files, nil)
	if err != nil {
		return 0, err
	}
	text, err := result.YAML()
	if err != nil {
		return 0, err
	}
	fmt.Print(text)
	result.List(os.Stderr)
	if len(result.Notes) > 0 {
		code = program.Found
	}
	return code, nil
}

// List lists settings without an equal.
func (r *Result) List(to io.Writer) {
	for i := range r.Notes {
		fmt.Fprintf(to, "no equal: %s\n", &r.Notes[i])
	}
	if r.Omitted > 0 {
		fmt.Fprintf(to, "and %d more without an equal\n", r.Omitted)
	}
}
