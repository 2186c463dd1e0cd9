package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/admin"
)

// except makes an exception. An existing one for the same values is shown and replaced, at the revision
// that was read, so that no unseen change is overwritten.
func (o *operator) except(kind rules.ExceptionKind, values []string) error {
	if o.lasts == "" {
		return program.Usagef("--for is missing: give the duration of the exception, such as --for 2h")
	}
	b := admin.NewException{Kind: kind, Rule: o.rule, By: o.by, Values: values, Limit: o.limits, For: o.lasts,
		Why: o.why}
	body, err := json.Marshal(&b)
	if err != nil {
		return err
	}
	var existing admin.Exceptions
	if _, err := o.send(get("exceptions"), &existing); err != nil {
		return err
	}
	var seen int64
	for _, e := range existing.Exceptions {
		if e.Kind == b.Kind && e.Rule == b.Rule && e.By == b.By && slices.Equal(e.Values, b.Values) {
			seen = e.Revision
			fmt.Fprintf(o.system.Err, "weir: this replaces %s, %s left, by %s%s\n", e.ID, e.Left, e.Who, because(e.Why))
		}
	}
	r := &serverRequest{method: http.MethodPost, path: "exceptions", kind: "application/json", body: body, seen: &seen}
	return show(o, r, func(w io.Writer, made *admin.Exception) {
		fmt.Fprintf(w, "%s, until %s, %s\n", made.ID, made.Until.Format(time.RFC3339),
			inForce(made.InForce, made.Waiting))
	})
}

func (o *operator) listExceptions([]string) error {
	return show(o, get("exceptions"), func(w io.Writer, answer *admin.Exceptions) {
		row(w, "ID", "KIND", "RULE", "VALUE", "LIMIT", "LEFT", "BY", "WHY", "STATE")
		for _, e := range answer.Exceptions {
			value := strings.Join(e.Values, " ")
			if e.By != "" {
				value = e.By + " " + value
			}
			row(w, e.ID, e.Kind, e.Rule, printable(value), strings.Join(e.Limit, ", "), e.Left, e.Who,
				printable(e.Why), inForce(e.InForce, e.Waiting))
		}
	})
}

func (o *operator) deleteException(args []string) error {
	var e admin.Exception
	path := "exceptions/" + url.PathEscape(args[0])
	if _, err := o.send(get(path), &e); err != nil {
		return err
	}
	r := &serverRequest{method: http.MethodDelete, path: path, query: o.query(), seen: &e.Revision}
	return show(o, r, func(w io.Writer, _ *admin.Written) { fmt.Fprintf(w, "%s is ended\n", e.ID) })
}

// because is a reason, after a colon.
func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + printable(why)
}

func inForce(is bool, waiting string) string {
	if is {
		return "in force"
	}
	return "not in force yet: " + waiting
}
