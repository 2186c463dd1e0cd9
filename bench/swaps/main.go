// Command swaps measures rules that are many, and rules that change while requests are
// decided, on the program as it is built, and prints Markdown: how long weir serve takes from
// its start until it is ready, with 100,000 rules in a directory and in Redis; and how long
// requests wait at worst while rules are swapped, beside the same load without swaps.
//
// The slices with and without swaps take turns: what else the machine does hits both alike.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	program := flag.String("program", "", "the weir to measure; without it, it is built")
	only := flag.String("only", "", "start or load; without it both")
	which := flag.String("rules", "", "only those swaps that are called so, such as \"all replaced\"")
	runs := flag.Int("runs", 9, "how often it is started")
	rounds := flag.Int("rounds", 10, "how often ten swaps are made, after as long a time without")
	flag.Parse()
	if err := run(*program, *only, *which, *runs, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "swaps:", err)
		os.Exit(1)
	}
}

func run(program, only, which string, runs, rounds int) error {
	dir, err := os.MkdirTemp("", "weir-swaps")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if program == "" {
		program = filepath.Join(dir, "weir")
		build := exec.Command("go", "build", "-o", program, "github.com/weirproject/weir/server/cmd/weir")
		build.Dir, build.Stderr = "..", os.Stderr
		build.Env = append(os.Environ(), "GOWORK=") // the workspace has the server
		if err := build.Run(); err != nil {
			return fmt.Errorf("building weir: %w", err)
		}
	}
	if only != "load" {
		if err := starts(program, dir, runs); err != nil {
			return err
		}
	}
	if only != "start" {
		return swaps(program, dir, which, rounds)
	}
	return nil
}
