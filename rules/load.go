package rules

// Load reads a file of rules and makes it ready: Parse, then Compile, with the same
// options. Errors are of type *Error, and list every mistake.
func Load(name string, text []byte, opts ...Option) (*Set, error) {
	file, err := Parse(name, text, opts...)
	if err != nil {
		return nil, err
	}
	return Compile(file, opts...)
}
