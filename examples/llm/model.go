package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

const says = "A weir lets a river through at the rate that its bed can bear , and no faster ."

// madeUp simulates a model: it answers each prompt with a sentence, one word per event, and then its usage.
func madeUp(w http.ResponseWriter, r *http.Request) {
	var p struct {
		Messages []struct{ Content string }
		Options  struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil || len(p.Messages) == 0 {
		http.Error(w, "Send JSON with messages.", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	words := strings.Fields(says)
	for _, word := range words {
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", word+" ")
		if err := http.NewResponseController(w).Flush(); err != nil {
			return // the reader left
		}
	}
	if p.Options.Usage {
		asked := len(strings.Fields(p.Messages[0].Content))
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"total_tokens\":%d}}\n\n", asked+len(words))
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}
