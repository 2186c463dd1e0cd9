// Package observe exports the metrics of decisions to Prometheus and answers liveness and readiness checks. The gate
// calls it with each verdict; counting one is a few atomic additions without allocation.
//
// # Labels
//
// Label values are constants of this package and names in the rules in force, of rules, limits, classes and
// units. They are never a key, an address or anything else that a caller chooses: a caller cannot create
// series without bound. Claims that callers bring are counted together under the rule "(claims)".
package observe
