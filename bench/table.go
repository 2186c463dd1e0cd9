package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// A table is printed as Markdown, padded so that it can be read as text too.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) {
	widths := make([]int, len(t.head))
	for _, cells := range append(t.rows, t.head) {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	line(w, t.head, widths)
	rule := make([]string, len(widths))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width-min(i, 1)) + strings.Repeat(":", min(i, 1))
	}
	line(w, rule, widths)
	for _, cells := range t.rows {
		line(w, cells, widths)
	}
	fmt.Fprintln(w)
}

func line(w io.Writer, cells []string, widths []int) {
	for i, cell := range cells {
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if i == 0 {
			fmt.Fprint(w, "| ", cell, pad, " |")
		} else {
			fmt.Fprint(w, " ", pad, cell, " |")
		}
	}
	fmt.Fprintln(w)
}
