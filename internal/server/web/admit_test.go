package web_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/server/web"
)

func TestHosts(t *testing.T) {
	hosts := web.Hosts{"localhost", "127.0.0.1", "::1"}
	for host, want := range map[string]bool{"localhost:8080": true, "LOCALHOST": true, "localhost.": true, "127.0.0.1:1": true, "[::1]:8080": true, "[::1]": true,
		"evil.example": false, "": false, "localhost.evil.example": false, "127.0.0.1.nip.io:80": false} {
		if hosts.Allow(host) != want {
			t.Errorf("%q: want %v", host, want)
		}
	}
	if !(web.Hosts{}).Allow("anybody") {
		t.Error("no names are any")
	}
}

func TestTokens(t *testing.T) {
	for _, bad := range []string{"", "short", strings.Repeat("x", 15), "a token that has spaces"} {
		if _, err := web.NewToken(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	var list []web.Token
	for _, text := range []string{"the-first-of-tokens", "the-second-of-tokens"} {
		token, err := web.NewToken(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, token)
	}
	for text, want := range map[string]int{"the-first-of-tokens": 0, "the-second-of-tokens": 1, "the-second-of-token": -1, "": -1} {
		shown := web.Hash(text)
		if got := web.Among(list, &shown); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if token, ok := web.Bearer("bearer  abc"); !ok || token != "abc" {
		t.Errorf("%q %v", token, ok)
	}
}
