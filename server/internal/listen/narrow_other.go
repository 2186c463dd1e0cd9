//go:build !unix

package listen

func narrow(uintptr, uint32) {}
