package redissource

import "crypto/tls"

// WithMaxRules limits the number of hashes, or of rules of a Ledger.
func WithMaxRules(most int) Option { return func(c *config) { c.most = most } }

// WithTLS sets the TLS configuration of the connection.
func WithTLS(tls *tls.Config) Option { return func(c *config) { c.tls = tls } }

// Plain exports plain.
func Plain(text string) string { return plain(text) }

// ReadHash reads a hash alone, as a source does.
func ReadHash(prefix, key string, fields map[string]string) *Hash {
	h := parse(prefix, key, plainFields(fields))
	if len(h.Problems) == 0 {
		h.check()
	}
	if len(h.Problems) > 0 {
		h.Rule = nil
	}
	return h
}
