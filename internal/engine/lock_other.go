//go:build !unix

package engine

import (
	"errors"
	"os"
)

// lockFile is not supported here: without it two processes would overwrite each other's state.
func lockFile(string) (*os.File, error) { return nil, errors.ErrUnsupported }
