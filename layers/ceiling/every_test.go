package ceiling_test

import "github.com/weirproject/weir"

// every gives every limit a ceiling of 1.2 times what it grants.
func every(*weir.Limit) (factor float64, ok bool) { return 1.2, true }
