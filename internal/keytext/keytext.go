// Package keytext reads the keys that rules make, for people.
package keytext

import (
	"strconv"
	"strings"
)

// Values are the values in a key as rules make it: "203.0.113.7" and "ann" of
// "client.ip=11:203.0.113.7 user=3:ann"; "-" for a missing one. It returns nil for another text.
func Values(key string) (values []string) {
	for rest := key; rest != ""; {
		_, after, named := strings.Cut(rest, "=")
		if missing, is := strings.CutPrefix(after, "-"); named && is {
			values = append(values, "-")
			rest = strings.TrimPrefix(missing, " ")
			continue
		}
		length, value, measured := strings.Cut(after, ":")
		n, err := strconv.Atoi(length)
		if !measured || err != nil || n < 1 || n > len(value) {
			return nil
		}
		values = append(values, value[:n])
		rest = strings.TrimPrefix(value[n:], " ")
	}
	return values
}

// Plain is a key without its components and lengths: "203.0.113.7 ann" of "client.ip=11:203.0.113.7 user=3:ann". A text
// that is no key, or is hashed, stays as it is.
func Plain(key string) string {
	if values := Values(key); values != nil {
		return strings.Join(values, " ")
	}
	return key
}
