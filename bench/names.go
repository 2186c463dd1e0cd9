package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// names are n distinct keys of one length, one after the other in one text. Asking in
// that order reads the text from front to back, as a server reads keys from requests that
// just came: warm. The limiter's memory of them is not warm, because shuffled names
// are asked in another order than they were entered in.
type names struct {
	text string
	size int
	n    int
}

// digits is the length of a name beside its prefix.
const digits = 18

func newNames(prefix string, n int) *names {
	return build(prefix, n, func(i int) int { return i })
}

func shuffledNames(prefix string, n int) *names {
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	return build(prefix, n, func(i int) int { return order[i] })
}

func build(prefix string, n int, nth func(int) int) *names {
	var text strings.Builder
	size := len(prefix) + digits
	text.Grow(n * size)
	for i := range n {
		// The step spreads the digits; the product stays below 10^18 for a million.
		fmt.Fprintf(&text, "%s%0*d", prefix, digits, int64(nth(i)+1)*618_033_988_749)
	}
	return &names{text: text.String(), size: size, n: n}
}

func (k *names) at(i int) string { return k.text[i*k.size : (i+1)*k.size] }
