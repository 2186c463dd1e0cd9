package main

import (
	"bufio"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

func TestAnsweredReadsOneAnswerAndNoOther(t *testing.T) {
	for text, ok := range map[string]bool{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello":                true,
		"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n":      false,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":   false,
		"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX: 1\r\n\r\nhello":        false,
		"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\nhelloHTTP/1": false,
	} {
		if err := answered(bufio.NewReader(strings.NewReader(text))); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A role is a handler, or weir serve with rules that it accepts. Each round checks the status of the answers.
func TestEachRoleServes(t *testing.T) {
	for _, p := range pairs() {
		for _, role := range []string{"upstream", p.base, p.mine} {
			weir, real := programOf(role, "http://127.0.0.1:1")
			_, err := handlerOf(role, "")
			if real == (err == nil) {
				t.Errorf("%s: %v, weir serve %v", role, err, real)
			}
			if _, err := rules.Load("rules.yaml", []byte(weir.rules)); real && err != nil {
				t.Errorf("%s: %v", role, err)
			}
		}
	}
	if _, err := handlerOf("none", ""); err == nil {
		t.Error("any role is served")
	}
}

func TestRatiosAreWithinARound(t *testing.T) {
	if got := paired([]float64{600, 200, 400}, []float64{300, 100, 200}); got != 2 {
		t.Errorf("ratio %v", got)
	}
}
