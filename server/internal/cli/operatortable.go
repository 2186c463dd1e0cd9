package cli

import (
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirproject/weir/rules"
)

// addFlag adds a flag of operators' commands by its name; usage "" is the usual one.
func (o *operator) addFlag(flags *pflag.FlagSet, name, usage string) {
	say := func(usual string) string {
		if usage != "" {
			return usage
		}
		return usual
	}
	switch name {
	case "why":
		flags.StringVar(&o.why, name, "", say("`REASON` of the change, for the history"))
	case "yes":
		flags.BoolVar(&o.yes, name, false, say("make the change even if it resets counts"))
	case "force":
		flags.BoolVar(&o.force, name, false, say("replace the rule whatever its revision"))
	case "forget":
		flags.BoolVar(&o.forget, name, false, say("accept the loss"))
	case "dry-run":
		flags.BoolVar(&o.dry, name, false, say("only show what would change"))
	case "revision":
		flags.Int64Var(&o.revision, name, 0, say("expected revision `NUMBER` of the rule: the change fails if it is "+
			"another\n(default: the current one when the command starts)"))
	case "rule":
		flags.StringVar(&o.rule, name, "", say("`NAME` of the rule"))
	case "by":
		flags.StringVar(&o.by, name, "", say("`COMPONENT` with the value, such as user or header.X-Api-Key\n"+
			"(default: the rule's key, or client.ip)"))
	case "for":
		flags.StringVar(&o.lasts, name, "", say("`TIME` after which the exception expires, such as 30m, 2h or 7d"))
	case "revert-after":
		flags.StringVar(&o.reverts, name, "", say("`TIME` after which the rule is again what it was, unless you "+
			"run\nweir rules confirm until then, such as 30m"))
	case "limit":
		flags.StringArrayVar(&o.limits, name, nil, say("temporary `LIMIT` of the key, such as 500/1m; repeatable"))
	case "value":
		flags.StringArrayVar(&o.values, name, nil, say("`VALUE` of a component of the rule's key; repeatable"))
	case "keys":
		flags.IntVar(&o.keys, name, 10, say("maximum `NUMBER` of keys of each kind, up to 100"))
	case "most":
		flags.IntVar(&o.most, name, 50, say("maximum `NUMBER` of changes, up to 1000"))
	case "last":
		flags.DurationVar(&o.last, name, time.Hour, say("`TIME` until now that is counted, from 1m to 24h"))
	case "watch":
		flags.DurationVar(&o.watch, name, 0, say("print again after each `TIME`, 1s to 1h, until it is interrupted"))
	case "node":
		flags.StringVar(&o.node, name, "", say("`NAME` of one node (default: all that share the store)"))
	case "check":
		flags.BoolVar(&o.check, name, false, say("exit with code 3 if something needs attention"))
	default:
		panic("there is no flag " + name)
	}
}

var (
	ofRule = argsBetween(1, 1, "the name of a rule")

	flagWhy, flagYes, flagRevision = [2]string{"why"}, [2]string{"yes"}, [2]string{"revision"}

	flagReverts = [2]string{"revert-after"}
)

func newRules(s *System) *cobra.Command {
	return s.group("rules", "Show and change the rules of a running server",
		`Show and change the rules of a running server. Changes are kept in its ledger, which overrides
rule files. The history records the author and reason of every change, and a rollback reverts
it. A change fails if another operator has changed the rule since it was read.`,
		`  weir rules list
  weir rules get login > login.rule
  weir rules set login login.rule --why "brute force"
  weir rules history login`,
		ruleCommands)
}

// turnRule is a command that needs no more than the name of a rule.
func turnRule(word, method, short string) operatorCommand {
	return operatorCommand{
		use: word + " NAME", short: short, args: ofRule,
		example: "  weir rules " + word + " login --why \"the attack is over\"",
		flags:   [][2]string{flagWhy, flagRevision},
		run:     func(o *operator, args []string) error { return o.turnRule(word, method, args[0]) },
	}
}

var ruleCommands = []operatorCommand{
	{
		use: "list", short: "List the rules in force, and disabled rules of the ledger",
		example: "  weir rules list\n  weir rules list --json", run: (*operator).listRules,
	}, {
		use: "get NAME", short: "Print a rule as its author wrote it", args: ofRule,
		example: "  weir rules get login", run: (*operator).getRule,
	}, {
		use: "set NAME [FILE]", short: "Set a rule from a file",
		args: argsBetween(1, 2, "the name of a rule and a file"),
		long: `Set a rule from a file or the standard input: one rule, as in the list of a rule file. It is
checked first, together with all rules in force. If the change resets counts, --yes is needed.

A rule in the ledger is replaced only if it is still at the revision that the text was made
from: that in its first line, if the text came from weir rules get ("# revision 7, …"), or that
of --revision. weir rules edit does all these steps.`,
		example: `  printf 'name: login\nkey: [client.ip]\nlimit: 5/1m\n' > login.rule
  weir rules set login login.rule --why "brute force"
  weir rules get login | sed 's/limit: .*/limit: 4\/1m/' | weir rules set login`,
		flags: [][2]string{flagWhy, flagYes, flagReverts, {"force"}, {"revision", "revision `NUMBER` that the text " +
			"was made from: the change fails if it is\nanother (default: that in the first line of the text)"}},
		run: (*operator).setRule,
	}, {
		use: "edit NAME", short: "Change a rule in your editor", args: ofRule,
		long: `Change a rule in $VISUAL, $EDITOR or vi. If another operator has changed it meanwhile, or your
text has a mistake, the text is kept in a file and the next command is suggested. A new rule
starts as a template.`,
		example: `  weir rules edit login --why "still too many"
  weir rules edit login --revert-after 30m`,
		flags: [][2]string{flagWhy, flagYes, flagReverts},
		run:   func(o *operator, args []string) error { return o.edit(args[0]) },
	},
	{
		use: "confirm NAME", short: "Keep a change that would revert by itself", args: ofRule,
		long: `Keep a change that was made with --revert-after. Without that the rule is again what it was, on all
nodes, also if they are restarted or Redis is down; the history records it. After that time the
command fails: make the change again.`,
		example: `  weir rules get login | sed 's/limit: .*/limit: 8\/1m/' | weir rules set login --revert-after 30m
  weir rules confirm login --why "nobody is refused"`,
		flags: [][2]string{flagWhy, flagRevision},
		run:   func(o *operator, args []string) error { return o.turnRule("confirm", http.MethodPost, args[0]) },
	},
	turnRule("delete", http.MethodDelete, "Delete a rule from the ledger; rollback restores it"),
	turnRule("enable", http.MethodPost, "Enable a rule of the ledger"),
	turnRule("disable", http.MethodPost, "Disable a rule of any source"),
	{
		use: "diff [FILE]", short: "Show the changes that a rule file would make",
		args: argsBetween(0, 1, "a file"),
		long: `Show what a rule file, or the standard input, would change if it replaced the rules in force:
rules added and removed, changed numbers, and counts that would be reset. With --rule the file
is a single rule, and all others stay as they are.`,
		example: `  weir rules diff weir.yaml
  printf 'name: login\nkey: [client.ip]\nlimit: 3/1m\n' | weir rules diff --rule login`,
		flags: [][2]string{{"rule", "`NAME` of the rule, if the file is a single rule"}},
		run:   (*operator).diffRules,
	}, {
		use: "history [NAME]", short: "Show the history of changes", args: argsBetween(0, 1, "the name of a rule"),
		long: `Show changes with their time, author and reason: of one rule and its keys, of one exception,
or of all. The newest is first.`,
		example: "  weir rules history\n  weir rules history login --most 10", flags: [][2]string{{"most"}},
		run: (*operator).history,
	}, {
		use: "rollback NAME REVISION", short: "Restore a rule to a revision of its history; 0: that of a file",
		args:    argsBetween(2, 2, "the name of a rule and a revision"),
		example: "  weir rules rollback login 1 --why \"too strict\"",
		flags:   [][2]string{flagWhy, flagRevision, flagYes}, run: (*operator).rollback,
	}, {
		use: "compare NAME", short: "Compare a rule with its candidate", args: ofRule,
		long: `Show what a rule's candidate would change: the numbers of requests newly refused and no longer
refused, and their keys. Counts are of this server only, since the last change of the rule or
its candidate; add up the counts of all servers.`,
		example: `  printf 'name: search\nkey: [client.ip]\nlimit: 30/1m\ncandidate: {limit: 20/1m}\n' | \
    weir rules set search
  weir rules compare search
  weir rules compare search --keys 3 --json`,
		flags: [][2]string{{"keys"}}, run: (*operator).compare,
	}, {
		use: "promote NAME", short: "Make a rule's candidate its limit", args: ofRule,
		long: `Make a rule's candidate its limit, with the candidate's algorithm and key if it has its own, and
remove the candidate. The rest of the rule stays as its author wrote it. The change is in the
history, and rollback reverts it. If the change resets counts, --yes is needed. A rule that is
not in the ledger must be promoted in its source: it is not copied to the ledger, because later
changes in the source would then have no effect.`,
		example: `  weir rules promote search --dry-run
  weir rules promote search --why "nobody newly refused in a week"`,
		flags: [][2]string{flagWhy, flagRevision, flagYes, {"dry-run"}}, run: (*operator).promote,
	}, {
		use: "restore", short: "Restore lost changes of the ledger in Redis",
		long: `Restore changes that the ledger in Redis has lost: its keys were deleted or evicted, or a replica
without the newest changes took over. Servers that read the ledger before keep it in force,
report the loss in /readyz and in their metrics, and refuse changes until it is resolved. Run
this command on one of them: it writes back its rules and exceptions in force, each as a new
change. Later changes are not overwritten. With --forget nothing is written back, and the
current content of the ledger is in force on all servers.`,
		example: `  weir rules restore --dry-run
  weir rules restore --why "the cache evicted it"`,
		flags: [][2]string{flagWhy, {"forget"}, {"dry-run", "only show what would be written back"}},
		run:   (*operator).restore,
	},
}

func newOverride(s *System) *cobra.Command {
	return s.group("override", "Override the limits of a key for a while; list and end exceptions",
		`Override the limits of a key for a while. Exceptions (overrides, blocks and allows) expire,
precede the rules of files, and are in force on all nodes of a ledger within a second.`,
		`  weir override set 203.0.113.7 --rule per-ip --limit 500/1m --for 2h --why "load test"
  weir override list`,
		[]operatorCommand{
			{
				use:     "set KEY... --rule RULE --limit LIMIT --for TIME",
				short:   "Override the limits of a key for a while",
				args:    argsBetween(1, 8, "a value for each component of the rule's key"),
				example: `  weir override set 203.0.113.7 --rule per-ip --limit 500/1m --for 2h --why "load test"`,
				flags:   [][2]string{flagWhy, {"for"}, {"rule"}, {"limit"}},
				run:     func(o *operator, args []string) error { return o.except("override", args) },
			}, {
				use: "list", short: "List overrides, blocks and allows, by expiry", example: "  weir override list",
				run: (*operator).listExceptions,
			}, {
				use: "delete ID", short: "End an exception before it expires",
				args:    argsBetween(1, 1, "the ID of an exception from weir override list"),
				example: "  weir override delete block-906ef93d1f --why \"the test is over\"",
				flags:   [][2]string{flagWhy}, run: (*operator).deleteException,
			},
		})
}

func newBlock(s *System) *cobra.Command {
	return s.listing("block", "Block a client for a while",
		`Block a client for a while: an address or a network, or with --by another value of a request.
With --rule only requests that match the rule are refused, by the rule's key.`,
		`  weir block 203.0.113.0/24 --for 1h --why "scanning"
  weir block mallory --by user --for 24h --why "stolen account"
  weir override list`)
}

func newAllow(s *System) *cobra.Command {
	return s.listing("allow", "Exempt a client from limits for a while",
		`Exempt a client from all rules for a while: an address or a network, or with --by another value
of a request. With --rule only that rule does not apply. A block takes precedence.`,
		`  weir allow 203.0.113.7 --for 30m --why "our load test"
  weir override list`)
}

// listing is the command block or allow.
func (s *System) listing(word, short, long, example string) *cobra.Command {
	return s.command(&operatorCommand{
		use: word + " VALUE --for TIME", short: short, long: long, example: example,
		args:  argsBetween(1, 1, "one address, network or value"),
		flags: [][2]string{flagWhy, {"for"}, {"by"}, {"rule", "`NAME` of the rule (default: all)"}},
		run:   func(o *operator, args []string) error { return o.except(rules.ExceptionKind(word), args) },
	})
}

func newKeys(s *System) *cobra.Command {
	ofKey := argsBetween(0, 8, "a value for each component of the rule's key")
	return s.group("keys", "Show and reset the counts of a key",
		`Show the remaining quota of a key under a rule of a running server, and reset its counts. A key
is the values of the rule's key components, in order, or one text as weir bans list prints it.`,
		`  weir keys get 203.0.113.7 --rule per-ip
  weir keys get client.ip=11:203.0.113.7 --rule per-ip
  weir keys reset 203.0.113.7 --rule per-ip --why "a mistake of ours"`,
		[]operatorCommand{
			{
				use: "get KEY... --rule RULE", short: "Show the remaining quota of a key", args: ofKey,
				example: "  weir keys get 203.0.113.7 --rule per-ip", flags: [][2]string{{"rule"}},
				run: func(o *operator, args []string) error { return o.key(http.MethodGet, "keys", args) },
			}, {
				use: "reset KEY... --rule RULE", args: ofKey,
				short: "Reset the counts of a key, or of all keys of a rule",
				long: `Reset the counts of a key under a rule, or with --yes and without KEY those of all its keys. In
Redis these are searched for, which takes a while; requests that come meanwhile may be counted
and stay so. Bans stay.`,
				example: "  weir keys reset 203.0.113.7 --rule per-ip",
				flags:   [][2]string{flagWhy, {"rule"}, {"yes", "reset all keys of the rule"}},
				run:     (*operator).resetKeys,
			},
		})
}

func newBans(s *System) *cobra.Command {
	return s.group("bans", "Show and lift bans",
		`Show the keys that rules of a running server have banned, and lift bans. Bans are kept in the
store: they hold on all nodes that share it, and are lifted on all.`,
		`  weir bans list
  weir bans lift login 203.0.113.7 --why "a mistake of ours"`,
		[]operatorCommand{
			{
				use: "list", short: "List the bans in force",
				long: `List up to 1,000 bans in force: those in the store, and those that this server imposed locally
while the store was down.`,
				example: "  weir bans list\n  weir bans list --json", run: (*operator).listBans,
			}, {
				use: "lift RULE [KEY]", short: "Lift a ban on all nodes, and forget earlier bans",
				args: argsBetween(1, 2, "the name of a rule and a key"),
				long: `Lift a ban on all nodes, and forget earlier bans: the next one is as long as a first. The counts
of the rule's limits stay; weir keys reset resets those. KEY is the value of a key with one
component, or a key from weir bans list; or give the values in order with --value, once for
each component.`,
				example: `  weir bans lift login 203.0.113.7 --why "a mistake of ours"
  weir bans lift login client.ip=11:203.0.113.7`,
				flags: [][2]string{flagWhy, {"value"}}, run: (*operator).liftBan,
			},
		})
}
