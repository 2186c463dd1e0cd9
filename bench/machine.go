package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// modules are those whose versions the header names.
var modules = []string{
	"golang.org/x/time", "github.com/throttled/throttled/v2", "github.com/ulule/limiter/v3", "github.com/sethvargo/go-limiter",
	"github.com/go-chi/httprate", "github.com/go-redis/redis_rate/v10", "github.com/redis/go-redis/v9", "github.com/redis/rueidis",
	"github.com/redis/rueidis/rueidislimiter", "github.com/zeromicro/go-zero",
}

// printMachine says where and with what it was measured.
func printMachine(w io.Writer, s *server, rounds string) {
	fmt.Fprintf(w, "# weir: benchmarks\n\n- %s, GOMAXPROCS %d, %s, %s/%s; load before the run %s\n",
		processor(), runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH, load())
	if s != nil {
		fmt.Fprintf(w, "- Redis %s, on the same machine as its clients\n", s.version())
	}
	fmt.Fprintf(w, "- %s; medians; the rows take turns\n- %s\n\n", rounds, strings.Join(versions(), ", "))
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	if first, _, ok := strings.Cut(string(text), " "); ok {
		return first
	}
	return "unknown"
}

func versions() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	found := map[string]string{}
	for _, module := range info.Deps {
		found[module.Path] = module.Version
	}
	var all []string
	for _, path := range modules {
		if version := found[path]; version != "" {
			all = append(all, strings.TrimPrefix(path, "github.com/")+" "+version)
		}
	}
	return all
}
