package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/keytext"
	"github.com/weirproject/weir/internal/timewords"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/admin"
)

// An explanationPrinter prints an explanation as text.
type explanationPrinter struct {
	*admin.Explanation
	of      string // how many rules there are, and where; "": not known
	store   string // whose counts they are
	assumed bool   // the address of the client
}

func (p *explanationPrinter) print(out io.Writer) error {
	var b strings.Builder
	if len(p.Descriptors) > 0 {
		p.printDescriptors(&b)
		_, err := io.WriteString(out, b.String())
		return err
	}
	p.printRequest(&b)
	fmt.Fprintf(&b, "\nMatching rules%s\n", p.of)
	printMatched(&b, "  ", &p.Explanation.Explanation)
	p.printServiceLimit(&b)
	p.printExceptions(&b)
	printMisses(&b, &p.Explanation.Explanation)
	p.printAnswer(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

func (p *explanationPrinter) printRequest(b *strings.Builder) {
	r := p.Request
	fmt.Fprintf(b, "%s %s%s\n", r.Method, r.Host, cmp.Or(r.Path, r.Sent))
	switch {
	case r.Path == "":
		fmt.Fprintf(b, "  path    ambiguous: servers interpret %s differently\n", r.Sent)
	case r.Path != r.Sent:
		fmt.Fprintf(b, "  path    sent as %s; rules and upstream get %s\n", r.Sent, r.Path)
	}
	if seen := (&rules.Request{Path: r.Path}).MatchedPath(); seen != r.Path {
		fmt.Fprintf(b, "  path    the upstream gets its parameters (;); rules see %s\n", seen)
	}
	client := r.Client
	if p.assumed && r.Client == defaultClient {
		client += " (assumed; set by --client)"
	}
	route := r.Route
	if r.Routed {
		route += " (chosen by host, path and method; set by --route)"
	}
	asn := ""
	if r.ASN != 0 {
		asn = fmt.Sprint(r.ASN)
	}
	lines := [][2]string{{"client", client}, {"country", r.Country}, {"asn", asn}, {"user", r.User},
		{"route", route}, {"service", r.Service}}
	for _, doubt := range r.Doubts {
		lines = append(lines, [2]string{"but", doubt})
	}
	for _, line := range lines {
		if line[1] != "" {
			fmt.Fprintf(b, "  %-7s %s\n", line[0], line[1])
		}
	}
}

// whyLimits says what the last window did to an adaptive limit.
var whyLimits = map[string]string{
	"start":    "it doubles at the start, until the latency rises",
	"demand":   "it grew, because requests reach it and the latency is that without load",
	"latency":  "it shrank, because the latency is over that without load",
	"overload": "it shrank, because the service refuses requests or answers too late",
	"steady":   "it stays: requests do not reach it, or there is no reason to change it",
}

// printServiceLimit prints the adaptive limit of the service, which a request meets after the rules.
func (p *explanationPrinter) printServiceLimit(b *strings.Builder) {
	l := p.Limit
	if l == nil {
		return
	}
	fmt.Fprintf(b, "\nThen the limit of service %s: %d to %d requests at once, %s\n", p.Request.Service, l.Min, l.Max,
		map[string]string{"gradient": "by latency", "aimd": "by refusals and errors"}[l.Adaptive])
	class := ""
	if l.Class != "" {
		class = fmt.Sprintf("; class %s waits at %d", l.Class, l.Room)
	}
	if !l.Live {
		fmt.Fprintf(b, "  %d at a start%s; --server URL shows the state of a gateway\n", l.Limit, class)
		return
	}
	fmt.Fprintf(b, "  now %d, with %d in flight and %d that wait%s\n", l.Limit, l.InFlight, l.Waiting, class)
	if l.Latency > 0 {
		fmt.Fprintf(b, "  latency %s, without load %s\n", shownSeconds(l.Latency), shownSeconds(l.Unloaded))
	}
	if why := whyLimits[l.Why]; why != "" && l.Min < l.Max {
		fmt.Fprintln(b, "  "+why)
	}
	if l.Measuring {
		fmt.Fprintln(b, "  it is lowered for a moment, to measure the latency without load")
	}
}

// shownSeconds is a latency in whole ms, or with three digits; a dash stands for an unknown one.
func shownSeconds(seconds float64) string {
	switch ms := seconds * 1000; {
	case ms == 0:
		return "-"
	case ms >= 100:
		return strconv.FormatFloat(ms, 'f', 0, 64) + "ms"
	default:
		return strconv.FormatFloat(ms, 'g', 3, 64) + "ms"
	}
}

// printMatched prints the rules that match, with the state of their keys.
func printMatched(b *strings.Builder, indent string, e *gate.Explanation) {
	table := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	var skipped, unread []string
	for i := range e.Rules {
		r := &e.Rules[i]
		switch {
		case r.Skipped != "" && r.Key == "" && e.Outcome != gate.Passed.String():
			unread = append(unread, r.Rule)
		case r.Skipped != "":
			skipped = append(skipped, r.Rule+" is not checked: "+r.Skipped)
		}
		for j := range r.Limits {
			printLimit(table, indent, r, &r.Limits[j], r.Shadow)
		}
		for j := range r.Candidate {
			printLimit(table, indent, r, &r.Candidate[j], true)
		}
	}
	table.Flush()
	for i := range e.Rules {
		printShares(b, indent, &e.Rules[i])
	}
	for _, text := range skipped {
		fmt.Fprintln(b, indent+text)
	}
	if len(unread) > 0 {
		fmt.Fprintf(b, "%s%s: not checked, because the request is %s\n", indent, strings.Join(unread, ", "), e.Outcome)
	}
	if len(e.Rules) == 0 {
		fmt.Fprintln(b, indent+"none")
	}
}

func printLimit(table io.Writer, indent string, r *gate.ExplainedRule, l *gate.ExplainedLimit, shadow bool) {
	unit, _ := rules.ParseUnit(r.Unit)
	state := limitState(l, unit)
	if shadow {
		state += ", shadow"
	}
	if r.Class != "" {
		state += ", class " + r.Class
	}
	if l.Floor > 0 {
		state += fmt.Sprintf(", which leaves %s to others", unit.Text(l.Floor))
	}
	if r.Learned > 0 {
		state += fmt.Sprintf(", learned from %d settled costs", r.Learned)
	}
	if r.Degraded == rules.Local {
		state += ", counted in this process"
	}
	fmt.Fprintf(table, "%s%s\t%s\t%s\t%s\t%s\n", indent, l.Name, l.Limit, mostOf(l.Limit, unit), state, shownKey(r.Key))
}

// mostOf is the maximum that a limit grants in its period, for any arrival of requests.
func mostOf(text string, unit rules.Unit) string {
	spec, err := weir.ParseLimit(text)
	if err != nil {
		return ""
	}
	limit, err := weir.NewLimit("limit", spec)
	if err != nil {
		return ""
	}
	if calendar, ok := spec.(weir.Calendar); ok {
		return fmt.Sprintf("up to %s from one %s to the next", unit.Text(2*calendar.Limit), calendar.Unit)
	}
	if limit.Leases() {
		return ""
	}
	period := time.Duration(limit.Period()) * time.Microsecond
	return fmt.Sprintf("up to %s in any %s", unit.Text(limit.MostIn(period)), timewords.Plain(period))
}

// limitState is the decision of a limit, in words.
func limitState(l *gate.ExplainedLimit, unit rules.Unit) (text string) {
	switch {
	case l.RetryAfter == nil:
		text = "refuses: the cost exceeds the limit"
	case *l.RetryAfter > 0:
		text = "refuses for " + wait(*l.RetryAfter)
	default:
		text = unit.Text(l.Remaining) + " left"
	}
	if l.Cost != 1 {
		text += ", costs " + unit.Text(l.Cost)
	}
	return text
}

// printShares prints the usage and share of the request's member in each fair limit, and the reason for the decision.
func printShares(b *strings.Builder, indent string, r *gate.ExplainedRule) {
	unit, _ := rules.ParseUnit(r.Unit)
	for _, l := range slices.Concat(r.Limits, r.Candidate) {
		if s := l.Standing; s != nil {
			weight := fmt.Sprintf("weight %d of %d", max(1, l.Weight), s.Weights)
			if s.Others {
				weight = fmt.Sprintf("with all members beyond max_keys, weight 1 of %d", s.Weights)
			}
			fmt.Fprintf(b, "%s%s, member %s (%s): uses %s of its share of %s, all members use %s, "+
				"open to all up to %s: %s\n", indent, l.Name, printable(keytext.Plain(l.Member)), weight,
				unit.Text(s.Own), unit.Text(s.Share), unit.Text(s.Used), unit.Text(s.Open), whyShared(&l))
		}
	}
}

// whyShared is the reason for the decision on a member's request, in words.
func whyShared(l *gate.ExplainedLimit) string {
	switch l.Standing.Why {
	case gate.HasRoom:
		return "granted, as there is room for all"
	case gate.WithinShare:
		return "granted within its share"
	case gate.BeyondShare:
		return "refused beyond its share"
	case gate.IsFull:
		if l.Floor > 0 {
			return "refused, as the whole limit is used up except for the units left to others"
		}
		return "refused, as the whole limit is used up"
	}
	return "refused, as the cost exceeds the limit"
}

// wait is a number of seconds for people, rounded.
func wait(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// printExceptions lists the exceptions that apply.
func (p *explanationPrinter) printExceptions(b *strings.Builder) {
	if len(p.Exceptions) == 0 {
		return
	}
	fmt.Fprintln(b, "\nExceptions of operators")
	for i := range p.Exceptions {
		x := &p.Exceptions[i]
		fmt.Fprintf(b, "  %s %s until %s%s\n", x.ID, effectOf(x), x.Until.Format(time.RFC3339), because(x.Why))
	}
}

// effectOf is the effect of an exception on the request.
func effectOf(x *admin.Exception) string {
	switch {
	case x.Kind == rules.Overridden:
		return "gives the key of " + x.Rule + " its limits"
	case x.Kind == rules.Blocked && x.Rule != "":
		return "blocks it under " + x.Rule
	case x.Kind == rules.Blocked:
		return "blocks it"
	case x.Rule != "":
		return "exempts it from " + x.Rule
	}
	return "lets it pass"
}

// printDescriptors prints a call of Envoy's rate limit service.
func (p *explanationPrinter) printDescriptors(b *strings.Builder) {
	for i := range p.Descriptors {
		d := &p.Descriptors[i]
		fmt.Fprintf(b, "%s\n\nMatching rules%s\n", printable(d.Descriptor), p.of)
		printMatched(b, "  ", &d.Explanation)
		printMisses(b, &d.Explanation)
		fmt.Fprintf(b, "\n  %s: %s\n\n", d.Code, reasonOf(&d.Explanation, nil))
	}
	fmt.Fprintf(b, "Answer (%s)\n  %s: %s\n", p.store, p.Code, reasonOf(&p.Explanation.Explanation, nil))
}

func printMisses(b *strings.Builder, p *gate.Explanation) {
	if len(p.NotMatched) == 0 {
		return
	}
	fmt.Fprintln(b, "\nSimilar rules that do not match")
	table := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	for _, m := range p.NotMatched {
		fmt.Fprintf(table, "  %s\t%s\n", m.Rule, printable(strings.Join(m.Why, "; ")))
	}
	table.Flush()
	if p.NotMatchedMore > 0 {
		fmt.Fprintf(b, "  and %d more\n", p.NotMatchedMore)
	}
}

func (p *explanationPrinter) printAnswer(b *strings.Builder) {
	fmt.Fprintf(b, "\nAnswer (%s)\n", p.store)
	what, before := "passes", ""
	if p.Outcome != gate.Passed.String() {
		what = fmt.Sprintf("%d %s", p.Answer.Status, http.StatusText(p.Answer.Status))
	} else if len(p.Answer.Headers) > 0 {
		before = "; before this request:"
	}
	fmt.Fprintf(b, "  %s: %s%s\n", what, reasonOf(&p.Explanation.Explanation, p.Exceptions), before)
	for _, name := range slices.Sorted(maps.Keys(p.Answer.Headers)) {
		fmt.Fprintf(b, "  %s: %s\n", name, p.Answer.Headers[name])
	}
	if p.Answer.Body != "" {
		fmt.Fprintf(b, "\n  %s\n", strings.TrimSpace(p.Answer.Body))
	}
}

// reasonOf is the reason of a decision, in words.
func reasonOf(e *gate.Explanation, exceptions []admin.Exception) string {
	by := ""
	if e.Rule != "" {
		by = " " + e.Rule
	}
	exception := func(kind rules.ExceptionKind) string {
		for i := range exceptions {
			if exceptions[i].Kind == kind {
				return exceptions[i].ID
			}
		}
		return ""
	}
	switch e.Reason {
	case gate.NoRule.String():
		return "no rule limits it"
	case gate.WithinLimits.String():
		return "within the limits;" + by + " is the closest"
	case gate.AllowList.String():
		if id := exception(rules.LetPass); id != "" {
			return "allowed by the exception " + id
		}
		return "on the allow list of the file"
	case gate.OtherRefused.String():
		return "it would pass alone, and another descriptor of the call is refused"
	case gate.LimitExceeded.String():
		return "refused by" + by
	case gate.Banned.String():
		return "banned by" + by
	case gate.DenyList.String():
		if id := exception(rules.Blocked); id != "" {
			return "blocked by the exception " + id
		}
		if by == "" {
			return "on the deny list of the file"
		}
		return "on the deny list of" + by
	case gate.MissingKey.String():
		return "the key of" + by + " is missing, and on_missing is deny"
	case gate.StoreFailed.String():
		return "the store is not responding: " + e.Error
	}
	return "invalid request: " + strings.TrimPrefix(e.Error, "weir: ")
}
