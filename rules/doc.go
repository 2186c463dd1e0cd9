// Package rules holds rule sets: plain data that says which requests are counted, their keys and their limits.
//
// [Parse] reads a file of rules and reports every mistake at once, each with its line, a caret and the allowed values;
// [Lint] also warns of rules that are valid but not intended, and [Schema] helps editors. [Compile] makes an
// immutable [Set] of a [File]. [Set.Match] finds the rules of a request in a tree: 10,000 rules cost about as much as
// 10. A [Rule] answers whether its schedule applies ([Rule.Active]), whether its lists name a request ([Rule.Listed]),
// the key of the request ([Rule.AppendKey]), its limits ([Rule.LimitsFor]) and its cost ([Rule.CostOf]). These methods
// allocate no memory.
//
// The package calls no store and decides no request: see package gate.
package rules
