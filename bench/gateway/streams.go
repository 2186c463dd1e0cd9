package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir/bench/process"
)

// Streams of events, as of a model API: each stream has an event every few milliseconds, with the time at which it was
// written.
const (
	streamRole = "streams" // of -only
	streamed   = 8         // at a time
	eventEvery = 5 * time.Millisecond
	events     = 200
)

// prompt asks for a stream, or for an answer.
const prompt = `{"model":"m","stream":true,"max_tokens":1000,"messages":[{"role":"user","content":"How is the weather?"}]}`

// answer is a response of 1 MiB of a model API, with its usage at the end. Its text has an escape every 50 bytes.
var answer = func() []byte {
	const text = `The weather will be fair: 21 °C, with some clouds\nin the evening, and a \"light\" wind from the west of ` +
		"the lake, as in the days before. "
	return []byte(`{"choices":[{"message":{"role":"assistant","content":"` + strings.Repeat(text, 1<<20/len(text)) +
		`"}}],"usage":{"prompt_tokens":20,"completion_tokens":180,"total_tokens":200}}`)
}()

// models answers as a model API: 1 MiB, or a stream if the header Accept asks for events.
func models(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Accept") != "text/event-stream" {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		w.Write(answer)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(eventEvery)
	defer ticker.Stop()
	for range events {
		<-ticker.C
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\" weather\"}}],\"at\":%d}\n\n", time.Now().UnixNano())
		http.NewResponseController(w).Flush()
	}
	fmt.Fprint(w, "data: {\"choices\":[],\"usage\":{\"total_tokens\":200}}\n\ndata: [DONE]\n\n")
}

// measureStreams prints how long events of streams take from the upstream to the client, through a bare ReverseProxy and
// through weir, in turns.
func measureStreams(program string, rounds int) error {
	up, err := start(program, "models", "")
	if err != nil {
		return err
	}
	defer up.Stop()
	roles := []string{"bare", "tokens", "steps"}
	servers, delays := map[string]*process.Server{}, map[string][]time.Duration{}
	for _, role := range roles {
		s, err := start(program, role, "http://"+up.Address)
		if err != nil {
			return err
		}
		defer s.Stop()
		servers[role] = s
	}
	for round := range rounds + 1 {
		for i := range roles {
			role := roles[(i+round)%len(roles)]
			seen, err := follow("http://" + servers[role].Address + "/v1/chat/completions")
			if err != nil {
				return fmt.Errorf("%s: %w", role, err)
			}
			if round > 0 { // else it warms up
				delays[role] = append(delays[role], seen...)
			}
		}
	}
	printDelays(roles, delays)
	return nil
}

func printDelays(roles []string, delays map[string][]time.Duration) {
	fmt.Printf("\n%d streams at a time, an event every %v\n\n| events through | number | median µs | p99 µs | more than %s, median | p99 |\n"+
		"| --- | ---: | ---: | ---: | ---: | ---: |\n", streamed, eventEvery, roles[0])
	at := func(role string, share float64) time.Duration {
		slices.Sort(delays[role])
		return delays[role][int(share*float64(len(delays[role])-1))]
	}
	for _, role := range roles {
		half, most := at(role, 0.5), at(role, 0.99)
		fmt.Printf("| %s | %d | %d | %d | %d | %d |\n", role, len(delays[role]), half.Microseconds(), most.Microseconds(),
			(half - at(roles[0], 0.5)).Microseconds(), (most - at(roles[0], 0.99)).Microseconds())
	}
}

// follow reads some streams at a time, and returns the delays of their events.
func follow(url string) (delays []time.Duration, err error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for range streamed {
		group.Go(func() {
			own, failed := read(url)
			mu.Lock()
			defer mu.Unlock()
			if delays = append(delays, own...); failed != nil {
				err = failed
			}
		})
	}
	group.Wait()
	return delays, err
}

func read(url string) (delays []time.Duration, err error) {
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(prompt))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "text/event-stream")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "data: {")
		if !ok {
			continue
		}
		now := time.Now().UnixNano()
		var event struct{ At int64 }
		if err := json.Unmarshal([]byte("{"+text), &event); err != nil {
			return nil, err
		}
		if event.At > 0 {
			delays = append(delays, time.Duration(now-event.At))
		}
	}
	if len(delays) != events {
		return nil, fmt.Errorf("%d events of %d, status %d: %w", len(delays), events, response.StatusCode, lines.Err())
	}
	return delays, nil
}
