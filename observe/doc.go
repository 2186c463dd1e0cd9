// Package observe tells operators what weir does: metrics for Prometheus, and whether the
// process is alive and ready. It is told of verdicts and is never in their way: counting
// one takes some additions and no memory.
//
// # What is in labels
//
// Names of rules in force, and words of this package: never a key, an address, or anything
// else that a caller can choose, so that nobody can make series without bound. Claims that
// callers bring are counted together under the rule "(claims)".
package observe
