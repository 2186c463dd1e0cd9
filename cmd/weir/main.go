// Command weir decides who may come now: a server and gateway of rate limits, and the
// tools round them. See weir --help and docs/weir.md.
package main

import (
	"os"
	_ "time/tzdata" // limits by calendar need zones, which bare containers lack

	"github.com/weirproject/weir/internal/cli"
)

func main() {
	os.Exit(cli.Run(&cli.System{Args: os.Args, Environ: os.Environ(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
