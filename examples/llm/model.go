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
	var p prompt
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	words := strings.Fields(says)
	words = words[:min(int64(len(words)), p.MaxTokens)]
	for _, word := range words {
		fmt.Fprintf(w, "data: {\"text\":%q}\n\n", word)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return // the reader left
		}
	}
	fmt.Fprintf(w, "data: {\"usage\":{\"total_tokens\":%d}}\n\n", tokens(p.Prompt)+int64(len(words)))
}
