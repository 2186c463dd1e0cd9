//go:build !linux

package forwardauth_test

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
