package main

// noopRow is the cost of the loop around every question.
func noopRow() row {
	return row{name: "noop", floor: true, refuses: true, open: func(Quota) (Peer, error) {
		return shared(func(string) (bool, error) { return true, nil }, nil), nil
	}}
}
