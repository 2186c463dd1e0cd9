package redissource

import "crypto/tls"

// WithMaxRules limits the number of hashes, or of rules of a Ledger.
func WithMaxRules(most int) Option { return func(c *config) { c.most = most } }

// WithTLS sets the TLS configuration of the connection.
func WithTLS(tls *tls.Config) Option { return func(c *config) { c.tls = tls } }

// Plain exports plain.
func Plain(text string) string { return plain(text) }
