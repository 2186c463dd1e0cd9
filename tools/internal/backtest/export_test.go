package backtest

import "context"

// Sentences are the texts of notes by code.
var Sentences = sentences

// Decisions returns the outcome of each request of the log, by line: the name of the rule that refuses it,
// "passed", or "400" for a request that a server refuses before the rules.
func Decisions(ctx context.Context, c *Config) (map[int64]string, error) {
	source, err := c.Open(1, 1)
	if err != nil {
		return nil, err
	}
	replayer, err := newReplayer(c.Set, c)
	if err != nil {
		return nil, err
	}
	list := make(map[int64]string)
	err = newReader(c).each(ctx, source, func(e *event) error {
		r, err := replayer.decide(ctx, e)
		if list[e.line] = nameIn(c.Set, r); r == undecided {
			list[e.line] = "400"
		}
		return err
	})
	return list, err
}
