package stories_test

import (
	"flag"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/stories"
)

var rewrite = flag.Bool("rewrite", false, "write the answers of the Go twins into the stories")

func TestStories(t *testing.T) {
	newStore := func(_ testing.TB, now func() weir.Instant) weir.Store { return newTwins(now) }
	if *rewrite {
		stories.Rewrite(t, newStore)
		return
	}
	stories.Run(t, newStore)
}
