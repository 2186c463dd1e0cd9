package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// startRules is how many a start reads.
const startRules = 100_000

// starts measures how long it takes from the start of the program until it is ready.
func starts(program, dir string, runs int) (err error) {
	rules := filepath.Join(dir, "many")
	if err := writeRules(rules); err != nil {
		return err
	}
	url, stop, err := hashes(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	fmt.Printf("## From the start until ready\n\n%d rules; %d starts of each, in turns.\n\n| rules from | best s | median s |\n| --- | ---: | ---: |\n", startRules, runs)
	sources := [][]string{{"a directory of 20 files", "--config", rules}, {"hashes in Redis", "--rules", url}}
	took := make([][]time.Duration, len(sources))
	for range runs {
		for i, source := range sources {
			s, err := serve(program, source[1:]...)
			if err != nil {
				return err
			}
			took[i] = append(took[i], s.took)
			if err := s.stop(); err != nil {
				return err
			}
		}
	}
	for i, source := range sources {
		slices.Sort(took[i])
		fmt.Printf("| %s | %.2f | %.2f |\n", source[0], took[i][0].Seconds(), took[i][runs/2].Seconds())
	}
	fmt.Println()
	return nil
}

func writeRules(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	const files = 20
	for f := range files {
		var text strings.Builder
		text.WriteString("rules:\n")
		for i := f * startRules / files; i < (f+1)*startRules/files; i++ {
			fmt.Fprintf(&text, "  - {name: r%d, match: {path: /svc%d/api/**}, key: [client.ip], limit: 100/1m}\n", i, i)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.yaml", f)), []byte(text.String()), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// hashes starts a Redis with a hash for each rule.
func hashes(dir string) (url string, stop func() error, err error) {
	address, err := free()
	if err != nil {
		return "", nil, err
	}
	_, port, _ := strings.Cut(address, ":")
	command := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir)
	if err := command.Start(); err != nil {
		return "", nil, fmt.Errorf("starting redis-server: %w", err)
	}
	stop = func() error { return errors.Join(command.Process.Signal(os.Interrupt), command.Wait()) }
	if err := fill(address); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return "redis://" + address, stop, nil
}

func fill(address string) error {
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for client.Ping(ctx).Err() != nil && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	const batch = 1000
	for from := 0; from < startRules; from += batch {
		pipe := client.Pipeline()
		for i := from; i < from+batch; i++ {
			pipe.HSet(ctx, fmt.Sprintf("rate_limit_config:%d", i), "id", i, "ruleName", fmt.Sprintf("r%d", i), "limitType", "INTERFACE",
				"limitTarget", fmt.Sprintf("svc:/svc%d/api", i), "limitCount", 100, "timeWindow", 60, "enabled", "true", "strategy", "TOKEN_BUCKET")
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}
