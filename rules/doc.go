// Package rules is the law as plain data: which requests are counted, against whom, and
// under which limits.
//
// [Parse] reads a file of rules and reports every mistake in it at once, each with its
// line, a caret and what would have been right; [Lint] also tells what is allowed and
// surely not meant, and [Schema] helps editors. [Compile] turns a [File] into an immutable
// [Set], whose Match finds the rules of a request in a tree: 10,000 rules cost about what
// 10 do. A [Rule] says whether it is in force ([Rule.Active]), whether its lists name the
// request ([Rule.Listed]), the key that the request is counted against
// ([Rule.AppendKey]), under which limits ([Rule.LimitsFor]), and what it costs
// ([Rule.CostOf]). None of that allocates memory.
//
// The package decides nothing: it asks no store, and what becomes of a refusal is not its
// business.
package rules
