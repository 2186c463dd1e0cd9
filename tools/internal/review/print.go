package review

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Print prints the table of a review.
func (r *Report) Print(out io.Writer) {
	if len(r.Rules) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s: the most that one key gets in any minute, hour and day, in the worst case\n", r.File)
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "  rule\tkey\tkeys\tlimit\tminute\thour\tday")
	for i := range r.Rules {
		rule := &r.Rules[i]
		key := cmp.Or(strings.Join(rule.Key, ", "), "all requests")
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", rule.Name, key, rule.Keys.Words,
			strings.Join(rule.Limits, ", "), shown(rule.Minute), shown(rule.Hour), shown(rule.Day))
	}
	table.Flush()
	for i := range r.Rules {
		for _, remark := range r.Rules[i].Remarks {
			fmt.Fprintf(out, "  %s: %s\n", r.Rules[i].Name, remark)
		}
	}
	if r.While != "" {
		fmt.Fprintf(out, "  %s\n", r.While)
	}
}

// shown is a number of units, or a dash without one.
func shown(n *int64) string {
	if n == nil {
		return "no bound"
	}
	return strconv.FormatInt(*n, 10)
}
