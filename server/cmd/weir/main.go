// Command weir is a rate limiter: a server, a gateway and command-line tools. See weir --help
// and docs/reference/weir.md.
package main

import (
	"os"
	_ "time/tzdata" // calendar limits need time zones, which minimal containers lack

	"github.com/weirproject/weir/server/internal/cli"
)

func main() {
	os.Exit(cli.Run(&cli.System{Args: os.Args, Environ: os.Environ(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
