// Package rules is the law as plain data: which requests are counted, against whom, and
// under which limits.
//
// [Parse] reads a file of rules and reports every mistake in it at once, each with its
// line, a caret and what would have been right. [Compile] turns a [File] into an immutable
// [Set], whose Match finds the rules of a request in a tree: 10,000 rules cost about what
// 10 do. A [Rule] builds the key that a request is counted against.
//
// The package decides nothing: it asks no store, and what becomes of a refusal is not its
// business.
package rules
