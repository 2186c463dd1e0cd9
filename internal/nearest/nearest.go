// Package nearest finds the word that was probably meant by a mistyped one.
package nearest

import "strings"

// longest is the longest text, in bytes, that is compared with words.
const longest = 128

// Of is the nearest word within two typing mistakes, the first of equally near ones, or "".
// Capitals do not matter.
func Of(given string, words []string) (meant string) {
	if len(given) > longest {
		return ""
	}
	best := min(2, len(given)/2) + 1
	for _, word := range words {
		if d := distance(strings.ToLower(given), strings.ToLower(word)); d < best {
			best, meant = d, word
		}
	}
	return meant
}

// distance is Levenshtein's: the number of bytes to insert, delete or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
