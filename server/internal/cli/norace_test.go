//go:build !race

package cli_test

var built, raceOf []string
