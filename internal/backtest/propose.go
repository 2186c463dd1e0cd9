package backtest

import "context"

func (r *replay) propose(ctx context.Context, passes int) ([]Proposal, error) { return nil, nil }

// SetPropose names the rules for which limits are proposed: all is all of them. name is of the flag, for errors.
func (c *Config) SetPropose(name string, list []string) error { return nil }
