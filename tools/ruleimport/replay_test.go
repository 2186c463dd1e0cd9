package ruleimport_test

import (
	"testing"

	"github.com/weirproject/weir/tools/ruleimport"
	"github.com/weirproject/weir/tools/ruleimport/importtest"
)

// imported is the result of one file, which must be a valid rule file.
func imported(t *testing.T, format, text string) (*ruleimport.Result, string) {
	t.Helper()
	return importtest.Import(t, "weir import "+format, ruleimport.Formats[format], text)
}
