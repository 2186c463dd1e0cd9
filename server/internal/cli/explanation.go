package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/timewords"
	"github.com/weirproject/weir/internal/whynot"
	"github.com/weirproject/weir/rules"
)

// An explanation is the output of explain, as --json prints it. Fields that the API has too have the
// same names.
type explanation struct {
	Request struct {
		Method  string   `json:"method"`
		Host    string   `json:"host,omitempty"`
		Path    string   `json:"path"`
		Sent    string   `json:"sent_path"`
		Client  string   `json:"client,omitempty"`
		Assumed bool     `json:"client_assumed,omitempty"`
		Country string   `json:"country,omitempty"` // if the rules need it
		ASN     uint32   `json:"asn,omitempty"`     // likewise
		User    string   `json:"user,omitempty"`
		Route   string   `json:"route,omitempty"`
		Routed  bool     `json:"routed,omitempty"` // the routes of the rules chose it
		Service string   `json:"service,omitempty"`
		Doubts  []string `json:"doubts,omitempty"`
	} `json:"request"`
	RulesFrom  string        `json:"rules_from,omitempty"`
	Rules      int           `json:"rules"`
	Store      string        `json:"store"`
	Outcome    string        `json:"outcome"`
	Reason     string        `json:"reason"`
	Rule       string        `json:"rule,omitempty"`
	Error      string        `json:"error,omitempty"`
	Matched    []string      `json:"matched"`
	Checks     []checked     `json:"checks"`
	Skipped    []skip        `json:"skipped,omitempty"`
	Exceptions []except      `json:"exceptions,omitempty"`
	Misses     []whynot.Miss `json:"not_matched,omitempty"`
	MoreMisses int           `json:"not_matched_more,omitempty"`
	Passed     bool          `json:"passed"`
	Answer     struct {
		Status int         `json:"status,omitempty"`
		Header http.Header `json:"headers,omitempty"`
		Body   string      `json:"body,omitempty"`
	} `json:"answer"`

	asked   *rules.Request
	matched []*rules.Rule
	nodes   int // that share the store
}

// A checked is one limit that was checked.
type checked struct {
	Rule       string `json:"rule"`
	Name       string `json:"name"`
	Limit      string `json:"limit"`
	Key        string `json:"key"`
	Shadow     bool   `json:"shadow,omitempty"`
	Cost       int64  `json:"cost"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after_us"`
	ResetAfter int64  `json:"reset_after_us"`
	Local      bool   `json:"local,omitempty"`
	Undecided  bool   `json:"undecided,omitempty"`
	Leased     string `json:"leased,omitempty"` // bound of the grants, if nodes prefetch units
}

// A skip is a rule that matched and was not checked.
type skip struct {
	Rule string `json:"rule"`
	Why  string `json:"why"`
}

// An except is an exception of operators that affects the request.
type except struct {
	ID    string              `json:"id"`
	Kind  rules.ExceptionKind `json:"kind"`
	Rule  string              `json:"rule,omitempty"`
	Until time.Time           `json:"until"`
	Why   string              `json:"why,omitempty"`
}

// note records the verdict. It is the gate's observer.
func (e *explanation) note(v *gate.Verdict) {
	e.Outcome, e.Reason = v.Outcome.String(), v.Reason.String()
	if v.Rule != nil {
		e.Rule = v.Rule.Name()
	}
	if v.Err != nil {
		e.Error = message(v.Err)
	}
	e.Checks, e.Matched, e.matched = []checked{}, []string{}, slices.Clone(v.Matched())
	for _, rule := range e.matched {
		e.Matched = append(e.Matched, rule.Name())
	}
	for i := range v.Len() {
		c := v.At(i)
		if c.Aside {
			continue
		}
		e.Checks = append(e.Checks, checked{
			Rule:       c.Rule.Name(),
			Name:       c.Claim.Limit.Name(),
			Limit:      c.Claim.Limit.String(),
			Key:        strings.Clone(c.Claim.Key),
			Shadow:     c.Shadow,
			Cost:       c.Claim.Cost,
			Remaining:  c.Decision.Remaining,
			RetryAfter: micros(c.Decision.RetryAfter),
			ResetAfter: micros(c.Decision.ResetAfter),
			Local:      c.Local,
			Undecided:  !c.Decided,
			Leased:     e.leased(v, &c),
		})
	}
	for _, s := range v.Skips() {
		e.Skipped = append(e.Skipped, skip{s.Rule.Name(), s.Why})
	}
	for _, x := range v.Exceptions(e.asked) {
		e.Exceptions = append(e.Exceptions, except{x.ID, x.Kind, x.Rule, x.Until.UTC().Truncate(time.Second), x.Why})
	}
}

// leased is the bound of the grants under a limit of which nodes prefetch units; "" if they do not.
func (e *explanation) leased(v *gate.Verdict, c *gate.Check) string {
	terms := engine.LeaseTerms(c.Rule)
	if terms.LeaseShare == 0 {
		return ""
	}
	if other := unleased(v); other != nil && !c.Shadow {
		return fmt.Sprintf("no units are prefetched, because rule %s has no lease_percent and counts the same requests",
			other.Name())
	}
	return terms.Bound(c.Claim.Limit, e.nodes)
}

// unleased is a rule without lease_percent in the decision, or nil. It prevents leases of the other
// rules: a lease is of all enforced limits together.
func unleased(v *gate.Verdict) *rules.Rule {
	for i := range v.Len() {
		if c := v.At(i); !c.Shadow && engine.LeaseTerms(c.Rule).LeaseShare == 0 {
			return c.Rule
		}
	}
	return nil
}

// event records refusals of the front end, which do not reach the gate.
func (e *explanation) event(_ *http.Request, event httplimit.Event) {
	if e.Outcome == "" && event.Err != nil {
		e.Outcome, e.Reason, e.Error = gate.Failed.String(), gate.BadInput.String(), message(event.Err)
	}
}

// micros is a wait in microseconds; -1 is never.
func micros(d time.Duration) int64 {
	if d == weir.Never {
		return -1
	}
	return d.Microseconds()
}

func (e *explanation) introduce(a *explainedRequest) {
	r := &e.Request
	r.Method, r.Host, r.Path, r.Sent, r.User, r.Service = a.Method, a.Host, a.Path, a.sent, a.User, a.Service
	if a.Client.IsValid() {
		r.Client, r.Assumed = a.Client.String(), a.assumed
	}
	r.Country, r.ASN = a.Country, a.ASN
	r.Route, r.Routed, r.Doubts = a.Route, a.routed, a.doubts
}

// print prints the explanation as text.
func (e *explanation) print(out io.Writer) error {
	var b strings.Builder
	e.printRequest(&b)
	e.printRules(&b)
	e.printExceptions(&b)
	e.printMisses(&b)
	e.printAnswer(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

func (e *explanation) printRequest(b *strings.Builder) {
	r := &e.Request
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
	if r.Assumed {
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

func (e *explanation) printRules(b *strings.Builder) {
	table := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(b, "\nMatching rules%s\n", e.ofHowMany())
	switch {
	case len(e.Checks)+len(e.Skipped) > 0:
	case len(e.Matched) > 0:
		fmt.Fprintf(b, "  %s: not checked, because the request is %s\n", strings.Join(e.Matched, ", "), e.Outcome)
	default:
		fmt.Fprintln(b, "  none")
	}
	for i := range e.Checks {
		c := &e.Checks[i]
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\n", c.Name, c.Limit, c.most(), c.state(), c.Key)
	}
	table.Flush()
	for i := range e.Checks {
		if c := &e.Checks[i]; c.Leased != "" {
			fmt.Fprintf(b, "  %s with %s on one Redis: %s\n", c.Name, count(e.nodes, "node"), c.Leased)
		}
	}
	for _, s := range e.Skipped {
		fmt.Fprintf(b, "  %s is not checked: %s\n", s.Rule, s.Why)
	}
}

// printExceptions lists the exceptions that apply.
func (e *explanation) printExceptions(b *strings.Builder) {
	if len(e.Exceptions) == 0 {
		return
	}
	fmt.Fprintln(b, "\nExceptions of operators")
	for i := range e.Exceptions {
		x := &e.Exceptions[i]
		fmt.Fprintf(b, "  %s %s until %s%s\n", x.ID, x.does(), x.Until.Format(time.RFC3339), because(x.Why))
	}
}

// does is the effect of the exception on the request.
func (x *except) does() string {
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

// exception is the ID of an exception of the kind; "" if there is none.
func (e *explanation) exception(kind rules.ExceptionKind) string {
	for i := range e.Exceptions {
		if e.Exceptions[i].Kind == kind {
			return e.Exceptions[i].ID
		}
	}
	return ""
}

// ofHowMany is the number of rules and their source, if known.
func (e *explanation) ofHowMany() string {
	if e.RulesFrom == "" {
		return ""
	}
	return fmt.Sprintf(" (of %s in %s), with their keys", count(e.Rules, "rule"), e.RulesFrom)
}

// most is the maximum that the limit grants in its period, for any arrival of requests.
func (c *checked) most() string {
	spec, err := weir.ParseLimit(c.Limit)
	if err != nil {
		return ""
	}
	limit, err := weir.NewLimit("limit", spec)
	if err != nil {
		return ""
	}
	if calendar, ok := spec.(weir.Calendar); ok {
		return fmt.Sprintf("up to %d from one %s to the next", 2*calendar.Limit, calendar.Unit)
	}
	if limit.Leases() {
		return ""
	}
	period := time.Duration(limit.Period()) * time.Microsecond
	return fmt.Sprintf("up to %d in any %s", limit.MostIn(period), timewords.Plain(period))
}

// state is the decision of a limit, in words.
func (c *checked) state() string {
	var text string
	switch {
	case c.Undecided:
		return "not checked"
	case c.RetryAfter < 0:
		text = "refuses: the cost exceeds the limit"
	case c.RetryAfter > 0:
		text = "refuses for " + wait(c.RetryAfter)
	default:
		text = fmt.Sprintf("%d left", c.Remaining)
	}
	if c.Cost != 1 {
		text += fmt.Sprintf(", costs %d", c.Cost)
	}
	if c.Shadow {
		text += ", shadow"
	}
	if c.Local {
		text += ", counted in this process"
	}
	return text
}

// wait is a duration for people, rounded.
func wait(micros int64) string {
	d := time.Duration(micros) * time.Microsecond
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.String()
}

func (e *explanation) printMisses(b *strings.Builder) {
	if len(e.Misses) == 0 {
		return
	}
	fmt.Fprintln(b, "\nSimilar rules that do not match")
	table := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	for _, m := range e.Misses {
		fmt.Fprintf(table, "  %s\t%s\n", m.Rule, strings.Join(m.Why, "; "))
	}
	table.Flush()
	if e.MoreMisses > 0 {
		fmt.Fprintf(b, "  and %d more\n", e.MoreMisses)
	}
}

func (e *explanation) printAnswer(b *strings.Builder) {
	fmt.Fprintf(b, "\nAnswer (%s)\n", e.Store)
	what := e.Outcome // of a running server, which sends no response to show
	switch {
	case e.Passed:
		what = "passes"
	case e.Answer.Status != 0:
		what = fmt.Sprintf("%d %s", e.Answer.Status, http.StatusText(e.Answer.Status))
	}
	fmt.Fprintf(b, "  %s: %s\n", what, e.because())
	for _, name := range slices.Sorted(maps.Keys(e.Answer.Header)) {
		for _, value := range e.Answer.Header[name] {
			fmt.Fprintf(b, "  %s: %s\n", name, value)
		}
	}
	if e.Answer.Body != "" {
		fmt.Fprintf(b, "\n  %s\n", strings.TrimSpace(e.Answer.Body))
	}
}

// because is the reason, in words.
func (e *explanation) because() string {
	by := ""
	if e.Rule != "" {
		by = " " + e.Rule
	}
	switch e.Reason {
	case gate.NoRule.String():
		return "no rule limits it"
	case gate.WithinLimits.String():
		return "within the limits;" + by + " is the closest; before this request:"
	case gate.AllowList.String():
		if id := e.exception(rules.LetPass); id != "" {
			return "allowed by the exception " + id
		}
		return "on the allow list of the file"
	case gate.LimitExceeded.String():
		return "refused by" + by
	case gate.Banned.String():
		return "banned by" + by
	case gate.DenyList.String():
		if id := e.exception(rules.Blocked); id != "" {
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
	return "invalid request: " + e.Error
}
