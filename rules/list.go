package rules

// A Listing says whether a list of a file, or of a rule, names a request.
type Listing uint8

// What lists say of a request. Where both lists name it, it is denied.
const (
	Unlisted Listing = iota
	Allowed
	Denied
)
