package rules

import (
	"reflect"
	"sync"
	"unsafe"
)

// Load reads a file of rules and makes it ready: Parse, then Compile, with the same
// options. Errors are of type *Error, and list every mistake.
func Load(name string, text []byte, opts ...Option) (*Set, error) {
	_, set, r := read(name, text, newOptions(opts), false)
	if err := r.err(); err != nil {
		return nil, err
	}
	return set, nil
}

// A Compiler is Parse and Compile for those who have the same rules go through several
// hands, each of which must be sure of them: it remembers the set of the last file, and
// does not make it again. It is safe for concurrent use; one call waits for another.
type Compiler struct {
	opts options

	mu   sync.Mutex
	file File // whose set it is
	set  *Set // nil: none yet
}

// NewCompiler makes a compiler that uses options as Parse and Compile do.
func NewCompiler(opts ...Option) *Compiler { return &Compiler{opts: newOptions(opts)} }

// Parse is the function Parse, and Compile of what it returns is free. The options come
// after those of the compiler.
func (c *Compiler) Parse(name string, text []byte, opts ...Option) (*File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.opts
	for _, opt := range opts {
		opt(&o)
	}
	file, set, r := read(name, text, o, false)
	if err := r.err(); err != nil {
		return nil, err
	}
	c.file, c.set = *file, set
	return file, nil
}

// Compile is the function Compile. The set is that of the call before if the file is the
// same, or a copy whose rules lie in the same place: so nobody may change a file, or what
// its fields hold, once it was compiled here.
func (c *Compiler) Compile(file *File) (*Set, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set != nil && same(&c.file, file) {
		return c.set, nil
	}
	set, err := compile(file, c.opts)
	if err == nil {
		c.file, c.set = *file, set
	}
	return set, err
}

// same reports whether two files say the same for sure, whatever they are called.
func same(a, b *File) bool {
	if len(a.Rules) != len(b.Rules) || unsafe.SliceData(a.Rules) != unsafe.SliceData(b.Rules) {
		return false
	}
	x, y := *a, *b
	x.Rules, y.Rules, x.Name, y.Name = nil, nil, "", ""
	return reflect.DeepEqual(x, y)
}
