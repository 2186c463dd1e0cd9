//go:build !unix

package cli

import (
	"errors"
	"os"
)

// lockFile is not known here: two processes would overwrite each other's state.
func lockFile(string) (*os.File, error) { return nil, errors.ErrUnsupported }
