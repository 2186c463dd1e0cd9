//go:build !linux

package main

import "syscall"

// dieWithParent: only Linux can.
func dieWithParent() *syscall.SysProcAttr { return nil }
