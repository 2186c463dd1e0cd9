package redissource

// NewLedger makes the source of a ledger, as Ledger.Source does, without connecting: that
// it does when it is run, however late Redis is. The URL and the options are those of
// OpenLedger.
func NewLedger(url string, opts ...Option) (*Source, error) {
	c, err := ledgerConfig(url, opts)
	if err != nil {
		return nil, err
	}
	return newSource(url, *c, newLedgerState(c)), nil
}
