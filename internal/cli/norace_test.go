//go:build !race

package cli_test

var built, raceOf []string

const setChanges = 20 // of a set
