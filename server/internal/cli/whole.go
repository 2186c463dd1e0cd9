//go:build !small

package cli

import (
	"time"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/server/internal/geosource"
)

// goRun runs the program from its sources, and smallness is what its version says of parts that are left out: see the
// file of small programs.
const (
	goRun     = "go run ./server/cmd/weir"
	smallness = ""
)

func locate(files []string, poll time.Duration) (engine.Geo, error) {
	return geosource.New(files, poll)
}
