package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	connections = 20
	every       = 2 * time.Millisecond // on each connection: 10,000 requests a second
	swapEvery   = 100 * time.Millisecond
	swapsASlice = 10
	// Work after rules were in force for a second is a part of the swaps.
	sliceLength = swapsASlice*swapEvery + 2*time.Second
)

// A change is what is swapped: the text of the rules the nth time.
type change struct {
	what  string
	rules int
	text  func(n int) string
}

func changes() []change {
	return []change{
		{"10 rules, all replaced", 10, func(n int) string { return manyRules(0, 10, n) }},
		{"1,000 rules, one changed", 1000, func(n int) string { return manyRules(0, 999, 0) + manyRules(999, 1000, n)[len("rules:\n"):] }},
		{"1,000 rules, all replaced", 1000, func(n int) string { return manyRules(0, 1000, n) }},
	}
}

// manyRules are rules from one number to another, whose limits are those of the nth time.
func manyRules(from, to, n int) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "- {name: r%d, match: {path: /svc%d/api/**}, key: [client.ip], limit: %d/1m}\n", i, i, 1_000_000+n)
	}
	return b.String()
}

func swaps(program, dir, which string, rounds int) error {
	fmt.Printf("\n%d swaps, ten a second and then two seconds without, in turns with slices as long without any; 10,000 requests a second on %d connections; ms\n\n", rounds*swapsASlice, connections)
	fmt.Println("| rules | | median | p99 | p99.9 | slices' worst: least | median | most | swaps seen |")
	fmt.Println("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, c := range changes() {
		if !strings.Contains(c.what, which) {
			continue
		}
		if err := c.measure(program, filepath.Join(dir, "rules.yaml"), rounds); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
	}
	return nil
}

func (c *change) measure(program, path string, rounds int) error {
	if err := put(path, c.text(0)); err != nil {
		return err
	}
	s, err := serve(program, "--config", path)
	if err != nil {
		return err
	}
	defer s.stop()
	var calm, swapped figures
	for range rounds {
		times, _, err := ask(s.address, c.rules-1, sliceLength)
		if err != nil {
			return err
		}
		calm.add(times)
		texts := make([]string, swapsASlice) // made before: the load is not to wait for them
		for i := range texts {
			texts[i] = c.text(swapped.rounds()*swapsASlice + i + 1)
		}
		var swapper sync.WaitGroup
		swapper.Go(func() { err = swap(path, texts) })
		times, limits, askErr := ask(s.address, c.rules-1, sliceLength)
		swapper.Wait()
		if err = errors.Join(err, askErr); err != nil {
			return err
		}
		swapped.add(times)
		swapped.seen += limits - 1
	}
	fmt.Printf("| %s | without | %s | |\n", c.what, calm.row())
	fmt.Printf("| | **swapped** | %s | %d |\n", swapped.row(), swapped.seen)
	return nil
}

// put writes a file as one should: beside it, then in its place.
func put(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func swap(path string, texts []string) error {
	tick := time.NewTicker(swapEvery)
	defer tick.Stop()
	for _, text := range texts {
		<-tick.C
		if err := put(path, text); err != nil {
			return err
		}
	}
	return nil
}

// figures are the times of requests, and the worst of each round.
type figures struct {
	all    []time.Duration
	worsts []time.Duration
	seen   int // how many swaps the requests saw
}

func (f *figures) rounds() int { return len(f.worsts) }

func (f *figures) add(times []time.Duration) {
	f.all = append(f.all, times...)
	f.worsts = append(f.worsts, slices.Max(times))
}

func (f *figures) row() string {
	all, worsts := slices.Sorted(slices.Values(f.all)), slices.Sorted(slices.Values(f.worsts))
	at := func(p float64) string { return ms(all[int(p*float64(len(all)))]) }
	return fmt.Sprintf("%s | %s | %s | %s | %s | %s", at(0.5), at(0.99), at(0.999), ms(worsts[0]), ms(worsts[len(worsts)/2]), ms(worsts[len(worsts)-1]))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d.Microseconds())/1000) }

// ask has requests sent at their times, whether those before were answered or not, and says
// how long after its time each was answered, and by how many different limits.
func ask(address string, rule int, length time.Duration) (times []time.Duration, limits int, err error) {
	body := fmt.Sprintf(`{"request":{"method":"GET","path":"/svc%d/api/orders","client":"203.0.113.7"}}`, rule)
	request := fmt.Sprintf("POST /v1/decide HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	callers := make([]caller, connections)
	var all sync.WaitGroup
	began := time.Now().Add(50 * time.Millisecond)
	for i := range callers {
		c := &callers[i]
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return nil, 0, err
		}
		defer connection.Close()
		c.connection, c.first, c.n = connection, began.Add(every*time.Duration(i)/connections), int(length/every)
		all.Go(func() { c.send(request) })
		all.Go(c.receive)
	}
	all.Wait()
	seen := make(map[string]bool)
	for _, c := range callers {
		times, err = append(times, c.times...), errors.Join(err, c.err)
		maps.Copy(seen, c.limits)
	}
	return times, len(seen), err
}

// A caller is one connection.
type caller struct {
	connection net.Conn
	first      time.Time // when it asks first
	n          int

	times  []time.Duration
	limits map[string]bool
	err    error
}

func (c *caller) due(i int) time.Time { return c.first.Add(time.Duration(i) * every) }

func (c *caller) send(request string) {
	for i := range c.n {
		time.Sleep(time.Until(c.due(i)))
		if _, err := io.WriteString(c.connection, request); err != nil { // receive fails as well
			return
		}
	}
}

func (c *caller) receive() {
	r := bufio.NewReader(c.connection)
	c.limits = make(map[string]bool)
	for i := range c.n {
		limit, err := answer(r)
		if err != nil {
			c.err = err
			return
		}
		c.times = append(c.times, time.Since(c.due(i)))
		if !c.limits[string(limit)] {
			c.limits[string(limit)] = true
		}
	}
}

// answer reads one, which must grant, and returns the limit by which it was decided.
func answer(r *bufio.Reader) (limit []byte, err error) {
	length := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if len(line) == 2 {
			break
		}
		if digits, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(digits))); err != nil {
				return nil, err
			}
		}
	}
	body, err := r.Peek(length)
	if err != nil {
		return nil, err
	}
	defer r.Discard(length)
	_, rest, granted := bytes.Cut(body, []byte(`"allowed":true`))
	_, rest, limited := bytes.Cut(rest, []byte(`"limit":"`))
	if !granted || !limited {
		return nil, fmt.Errorf("the answer is %q", body)
	}
	limit, _, _ = bytes.Cut(rest, []byte(`"`))
	return limit, nil
}
