//go:build !unix

package cli

// openFiles: the limit is not known on this system.
func openFiles() (files int, ok bool) { return 0, false }
