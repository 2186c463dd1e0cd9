package backtest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirproject/weir/internal/webvalues"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// A Condition selects requests of a log.
type Condition struct {
	set    *rules.Set // with one rule; nil: no condition of a rule's match
	status []func(int) bool
}

// conditionHelp lists the forms of a condition.
const conditionHelp = "conditions with spaces between them, all of which are met: method=POST, host=…, " +
	"path=/login/**, client=10.0.0.0/8, user=*, service=…, route=…, header.NAME=…, query.NAME=…, with commas " +
	"between alternatives; status=200, status=4xx, status<400 (and !=, <=, >, >=)"

// ParseCondition reads a condition, such as "path=/login status<400". name is of the flag, for errors.
func ParseCondition(name, text string, form pathform.Form) (*Condition, error) {
	c := new(Condition)
	var m rules.Match
	words := strings.Fields(text)
	for _, word := range words {
		if rest, is := strings.CutPrefix(word, "status"); is && rest != "" && strings.ContainsAny(rest[:1], "=<>!") {
			test, err := parseStatus(rest)
			if err != nil {
				return nil, fmt.Errorf("%s has %.80q; %w", name, word, err)
			}
			c.status = append(c.status, test)
			continue
		}
		if !setField(&m, word) {
			return nil, fmt.Errorf("%s has %.80q; allowed: %s", name, word, conditionHelp)
		}
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("%s is empty; allowed: %s", name, conditionHelp)
	}
	if len(c.status) == len(words) {
		return c, nil
	}
	file := &rules.File{Name: name, Server: rules.Server{PathForm: strings.Split(form.String(), ",")},
		Rules: []rules.Spec{{Name: "condition", Match: m, Limit: []string{"1/1s"}}}}
	if form == (pathform.Form{}) {
		file.PathForm = nil
	}
	var err error
	if c.set, err = rules.Compile(file); err != nil {
		return nil, fmt.Errorf("%s is %.80q: %w", name, text, err)
	}
	return c, nil
}

// setField sets a field of a match.
func setField(m *rules.Match, word string) bool {
	field, value, ok := strings.Cut(word, "=")
	if !ok || field == "" || value == "" {
		return false
	}
	kind, name, named := strings.Cut(field, ".")
	values := strings.Split(value, ",")
	lists := map[string]*[]string{"method": &m.Method, "host": &m.Host, "client": &m.Client, "user": &m.User,
		"service": &m.Service, "route": &m.Route}
	tables := map[string]*map[string][]string{"header": &m.Header, "query": &m.Query}
	switch {
	case field == "path":
		m.Path = value
	case !named && lists[field] != nil:
		*lists[field] = values
	case named && tables[kind] != nil:
		if *tables[kind] == nil {
			*tables[kind] = make(map[string][]string)
		}
		(*tables[kind])[name] = values
	default:
		return false
	}
	return true
}

// parseStatus reads what follows the word status.
func parseStatus(text string) (func(int) bool, error) {
	operator := text[:len(text)-len(strings.TrimLeft(text, "=<>!"))]
	value := text[len(operator):]
	from, err := strconv.Atoi(value)
	to := from
	if class, is := strings.CutSuffix(strings.ToLower(value), "xx"); is && len(class) == 1 {
		from, err = strconv.Atoi(class + "00")
		to = from + 99
	}
	compare := map[string]func(int) bool{
		"=":  func(s int) bool { return from <= s && s <= to },
		"!=": func(s int) bool { return s < from || s > to },
		"<":  func(s int) bool { return s < from },
		"<=": func(s int) bool { return s <= to },
		">":  func(s int) bool { return s > to },
		">=": func(s int) bool { return s >= from },
	}[operator]
	if err != nil || compare == nil || from < 100 || to > 599 {
		return nil, fmt.Errorf("allowed: status with =, !=, <, <=, > or >=, and 100 to 599 or a class such as 4xx")
	}
	return compare, nil
}

// meets reports whether a request meets the condition. A request without a status meets no condition on the status.
// routes has the services and routes.
func (c *Condition) meets(e *event, routes *rules.Set) bool {
	for _, test := range c.status {
		if e.status == 0 || !test(int(e.status)) {
			return false
		}
	}
	if c.set == nil {
		return true
	}
	var r rules.Request
	e.request(&r)
	if r.Attributes == nil {
		r.Attributes = &values{Request: webvalues.Request{Host: e.host, RawQuery: e.query, Fields: &e.fields}}
	}
	routes.SetRoute(&r)
	var buffer [1]*rules.Rule
	return len(c.set.Match(&r, buffer[:0])) > 0
}
