package ruletest

import (
	"encoding/xml"
	"fmt"
	"io"
)

// A Report is the results of files.
type Report struct {
	Passed int          `json:"passed"`
	Failed int          `json:"failed"`
	Files  []FileReport `json:"files"`
}

// A FileReport is the results of a file.
type FileReport struct {
	Name  string       `json:"file"`
	Tests []TestReport `json:"tests"`
}

// A TestReport is the result of a test.
type TestReport struct {
	Name     string   `json:"name"`
	Line     int      `json:"line"`
	Passed   bool     `json:"passed"`
	Requests int64    `json:"requests"`
	Seconds  float64  `json:"seconds"`
	Failures []string `json:"failures,omitempty"`
}

// Add adds the results of a file.
func (r *Report) Add(f *File, results []*Result) {
	file := FileReport{Name: f.Name, Tests: []TestReport{}}
	for _, one := range results {
		test := TestReport{Name: one.Test.Name, Line: one.Test.Line, Passed: len(one.Failures) == 0,
			Requests: one.Requests, Seconds: one.Took.Seconds()}
		for i := range one.Failures {
			test.Failures = append(test.Failures, one.Failures[i].String(f, one.Test))
		}
		if test.Passed {
			r.Passed++
		} else {
			r.Failed++
		}
		file.Tests = append(file.Tests, test)
	}
	r.Files = append(r.Files, file)
}

// Text writes the failures, and a line for each file.
func (r *Report) Text(out io.Writer) error {
	for i := range r.Files {
		f := &r.Files[i]
		failed, seconds := 0, 0.0
		for _, test := range f.Tests {
			seconds += test.Seconds
			if !test.Passed {
				failed++
			}
			for _, text := range test.Failures {
				fmt.Fprintln(out, text)
			}
		}
		state := fmt.Sprintf("ok    %s: %d passed", f.Name, len(f.Tests))
		if failed > 0 {
			state = fmt.Sprintf("FAIL  %s: %d of %d failed", f.Name, failed, len(f.Tests))
		}
		if _, err := fmt.Fprintln(out, state); err != nil {
			return err
		}
	}
	return nil
}

// The elements of JUnit's XML.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name     string         `xml:"name,attr"`
		Class    string         `xml:"classname,attr"`
		File     string         `xml:"file,attr"`
		Line     int            `xml:"line,attr"`
		Seconds  string         `xml:"time,attr"`
		Failures []junitFailure `xml:"failure"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes the report as JUnit's XML, which CI servers read.
func (r *Report) JUnit(out io.Writer) error {
	all := junitSuites{Tests: r.Passed + r.Failed, Failures: r.Failed}
	for _, f := range r.Files {
		suite := junitSuite{Name: f.Name, Tests: len(f.Tests)}
		for _, test := range f.Tests {
			one := junitCase{Name: test.Name, Class: f.Name, File: f.Name, Line: test.Line,
				Seconds: fmt.Sprintf("%.6f", test.Seconds)}
			for _, text := range test.Failures {
				one.Failures = append(one.Failures, junitFailure{Message: "unexpected decision", Text: text})
			}
			if !test.Passed {
				suite.Failures++
			}
			suite.Cases = append(suite.Cases, one)
		}
		all.Suites = append(all.Suites, suite)
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s%s\n", xml.Header, text)
	return err
}
