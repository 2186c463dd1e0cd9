package rules

// Load reads a file of rules and makes it ready: Parse, then Compile. Errors are of type
// *Error, and list every mistake.
func Load(name string, text []byte, opts ...Option) (*Set, error) {
	file, err := Parse(name, text)
	if err != nil {
		return nil, err
	}
	return Compile(file, opts...)
}
