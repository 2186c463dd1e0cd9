//go:build unix && !linux

package redistest

import "syscall"

// DieWithParent does nothing here.
func DieWithParent() *syscall.SysProcAttr { return nil }
