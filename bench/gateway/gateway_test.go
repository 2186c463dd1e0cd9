package main

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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

// A row that does not do its work must not get a figure.
func TestEachRoleServes(t *testing.T) {
	upstream, err := handlerOf("upstream", "")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(upstream)
	defer server.Close()
	for _, p := range pairs() {
		for _, role := range []string{p.base, p.mine} {
			handler, err := handlerOf(role, server.URL)
			if err != nil {
				t.Fatal(err)
			}
			request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(p.request)))
			if err != nil {
				t.Fatal(err)
			}
			request.RemoteAddr = "192.0.2.1:1"
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, request)
			if w.Code != 200 || w.Body.Len() != 1024 && p.bar == "CPU ≤ 1.15×" || (w.Header().Get("RateLimit") != "") != (role == "gateway" || role == "routes") || role == "decide" && !strings.Contains(w.Body.String(), `"allowed":true`) {
				t.Errorf("%s: %d, %d bytes, %v", role, w.Code, w.Body.Len(), w.Header())
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
