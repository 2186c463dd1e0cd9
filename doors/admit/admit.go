// Package admit is what doors ask of whoever comes: a token, and the name by which the
// server was addressed.
package admit

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"
)

// leastToken is the shortest token: a shorter one can be guessed.
const leastToken = 16

// A Token is the hash of a token: who reads the memory finds none of them, and all
// comparisons are of one length.
type Token [sha256.Size]byte

// NewToken hashes a token as an operator gives it.
func NewToken(text string) (Token, error) {
	if len(text) < leastToken || strings.ContainsAny(text, " \t\r\n") {
		return Token{}, errors.New("a token is shorter than 16 characters, or has space in it; make one with: openssl rand -hex 32")
	}
	return Hash(text), nil
}

// Hash hashes a token that a caller shows.
func Hash(text string) Token { return sha256.Sum256([]byte(text)) }

// Among is the index of the token in the list, or −1. It compares with all of them, in
// constant time.
func Among(list []Token, shown *Token) int {
	found := -1
	for i := range list {
		equal := subtle.ConstantTimeCompare(list[i][:], shown[:])
		found = subtle.ConstantTimeSelect(equal, i, found)
	}
	return found
}

// Bearer is the token of an Authorization field (RFC 6750); ok is false where it has none.
func Bearer(authorization string) (token string, ok bool) {
	scheme, token, _ := strings.Cut(authorization, " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// Hosts are the names by which a server may be addressed; none: any.
type Hosts []string

// NewHosts makes hosts of names, without port.
func NewHosts(names ...string) (h Hosts) {
	for _, name := range names {
		h = append(h, Bare(name))
	}
	return h
}

// Allow reports whether a Host field has one of the names.
func (h Hosts) Allow(host string) bool {
	host = Bare(host)
	for _, name := range h {
		if strings.EqualFold(host, name) {
			return true
		}
	}
	return len(h) == 0
}

// Bare is a host without port, brackets and final dot.
func Bare(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 && (strings.IndexByte(host, ':') == i || host[0] == '[') {
		host = host[:i]
	}
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	return strings.TrimSuffix(host, ".")
}
