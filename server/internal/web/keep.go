package web

import (
	"time"

	"github.com/weirproject/weir"
)

// UsualKeep is how long an id is kept if the request does not say.
const UsualKeep = 10 * time.Minute

// ReadKeep reads how long an id is kept, such as 10m. weir.Once has its bounds.
func ReadKeep(text string) (keep time.Duration, ok bool) {
	spec, err := weir.ParseLimit("fixed_window 1/" + text)
	window, _ := spec.(weir.FixedWindow)
	// A text with blanks could be options of a limit.
	ok = err == nil && window == weir.FixedWindow{Limit: 1, Window: window.Window}
	return window.Window, ok
}
