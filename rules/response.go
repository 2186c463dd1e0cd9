package rules

// Fields says which header fields tell a client of its limits.
type Fields string

// The families of fields.
const (
	DraftFields    Fields = "draft"     // RateLimit-Policy and RateLimit of the IETF's draft 11
	SecondsFields  Fields = "seconds"   // X-RateLimit-Limit, -Remaining, -Reset in seconds from now
	UnixTimeFields Fields = "unix_time" // the same, with Reset in seconds since 1970
	NoFields       Fields = "none"
)

// A Response says what a client is told, by its own fields where they are set, else by the
// file's, else by the defaults.
type Response struct {
	Status      int    // of a refusal, 400 to 599; 0 is 429
	Fields      Fields // "" is DraftFields
	Body        string // problem (also ""), json, or a text/template
	ContentType string // of a template's text; "" is text/plain; charset=utf-8
}
