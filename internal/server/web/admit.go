// Package web checks access to a front end: the token of a caller, and the host name of a
// request.
package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"slices"
	"strings"

	"github.com/weirproject/weir/pathform"
)

// leastToken is the minimum length of a token; a shorter one can be guessed.
const leastToken = 16

// A Token is the hash of a token, so that memory holds no secret and all comparisons have one
// length.
type Token [sha256.Size]byte

// NewToken hashes a configured token.
func NewToken(text string) (Token, error) {
	if len(text) < leastToken || strings.ContainsAny(text, " \t\r\n") {
		return Token{}, errors.New("a token is shorter than 16 characters or contains white space; " +
			"make one with: openssl rand -hex 32")
	}
	return Hash(text), nil
}

// Hash hashes a token that a caller sent.
func Hash(text string) Token { return sha256.Sum256([]byte(text)) }

// Among returns the index of a token in the list, or −1. It compares with every entry, in constant
// time.
func Among(list []Token, sent *Token) int {
	found := -1
	for i := range list {
		equal := subtle.ConstantTimeCompare(list[i][:], sent[:])
		found = subtle.ConstantTimeSelect(equal, i, found)
	}
	return found
}

// Bearer returns the token of an Authorization field (RFC 6750); ok is false if the field has none.
func Bearer(authorization string) (token string, ok bool) {
	scheme, token, _ := strings.Cut(authorization, " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// Hosts are the allowed host names of a server, without port; an empty list allows any.
type Hosts []string

// Allow reports whether the value of a Host field is one of the names.
func (h Hosts) Allow(host string) bool {
	if len(h) == 0 {
		return true
	}
	host, err := pathform.Host(host)
	return err == nil && slices.ContainsFunc(h, func(name string) bool { return strings.EqualFold(host, name) })
}
