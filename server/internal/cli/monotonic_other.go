//go:build !linux

package cli

import "time"

func monotonic() time.Duration { return 0 }
