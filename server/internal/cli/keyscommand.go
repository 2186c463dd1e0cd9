package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/server/internal/admin"
)

// key shows a key, after a reset if the method is POST.
func (o *operator) key(method, path string, args []string) error {
	if o.rule == "" {
		return program.Usagef("--rule is missing: give the name of the rule")
	}
	query := o.query("rule", o.rule)
	if len(args) == 1 {
		query.Set("key", args[0])
	} else if len(args) > 1 {
		query["value"] = args
	}
	return show(o, &serverRequest{method: method, path: path, query: query}, func(w io.Writer, k *gate.ExplainedRule) {
		row(w, "LIMIT", "REMAINING", "RETRY AFTER", "RESET AFTER")
		for _, l := range k.Limits {
			retry := "never"
			if l.RetryAfter != nil {
				retry = fmt.Sprintf("%gs", *l.RetryAfter)
			}
			row(w, l.Limit, fmt.Sprint(l.Remaining), retry, fmt.Sprintf("%gs", l.ResetAfter))
		}
		if k.BannedFor > 0 {
			fmt.Fprintf(w, "\nbanned for another %gs; weir bans lift ends the ban\n", k.BannedFor)
		}
	})
}

// resetKeys resets a key, or with --yes and without a key all keys of a rule.
func (o *operator) resetKeys(args []string) error {
	if !o.yes || len(args) > 0 || o.rule == "" {
		err := o.key(http.MethodPost, "keys/reset", args)
		if err != nil && len(args) == 0 && o.rule != "" {
			err = fmt.Errorf("%w; to reset all keys of the rule give --yes instead of a key", err)
		}
		return err
	}
	r := &serverRequest{method: http.MethodPost, path: "rules/" + url.PathEscape(o.rule) + "/reset", query: o.query()}
	for total := 0; ; {
		var answer admin.RuleReset
		if _, err := o.send(r, &answer); err != nil && total == 0 {
			return err
		} else if err != nil {
			return fmt.Errorf("%d keys were reset; run the command again for the others: %w", total, err)
		}
		if total += answer.Keys; answer.Next == "" {
			answer.Keys = total
			text, _ := json.Marshal(answer) // it was decoded from JSON
			return o.print(append(text, '\n'), func(w io.Writer) {
				fmt.Fprintf(w, "all keys of %s are reset: %d\n", o.rule, total)
			})
		}
		fmt.Fprintf(o.system.Err, "%d keys are reset so far\n", total)
		r.query.Set("cursor", answer.Next)
		o.again()
	}
}

func (o *operator) listBans([]string) error {
	return show(o, get("bans"), func(w io.Writer, answer *admin.Bans) {
		row(w, "RULE", "KEY", "FROM", "UNTIL", "FOR", "WHERE")
		for _, b := range answer.Bans {
			where := "all nodes"
			if b.Local {
				where = "this node"
			}
			row(w, b.Rule, shownKey(b.Key), b.From.Format(time.RFC3339), b.Until.Format(time.RFC3339), b.Length, where)
		}
	})
}

func (o *operator) liftBan(args []string) error {
	if (len(args) == 2) == (len(o.values) > 0) {
		return program.Usagef("give a KEY, such as 203.0.113.7 or one from weir bans list, or --value VALUE for each " +
			"component of the rule's key")
	}
	query := o.query("rule", args[0])
	if len(args) == 2 {
		query.Set("key", args[1])
	} else {
		query["value"] = o.values
	}
	r := &serverRequest{method: http.MethodPost, path: "bans/lift", query: query}
	return show(o, r, func(w io.Writer, answer *admin.Lifted) {
		text := "%s is no longer banned by %s\n"
		if !answer.Banned {
			text = "%s was not banned by %s; its counts towards a ban are reset\n"
		}
		fmt.Fprintf(w, text, shownKey(answer.Key), answer.Rule)
	})
}
