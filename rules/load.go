package rules

import (
	"reflect"
	"sync"
	"unsafe"
)

// Load is Parse, then Compile, with the same options. Errors are of type *Error, and list every mistake.
func Load(name string, text []byte, opts ...Option) (*Set, error) {
	_, set, r := read(name, text, newOptions(opts))
	if err := r.err(); err != nil {
		return nil, err
	}
	return set, nil
}

// A Compiler is Parse and Compile for rules that pass through several functions that each check them: it caches the set
// of the last file. It is safe for concurrent use; calls are serialized.
type Compiler struct {
	opts options

	mu   sync.Mutex
	file File // of set
	set  *Set // nil: none yet
}

// NewCompiler makes a compiler that uses options as Parse and Compile do.
func NewCompiler(opts ...Option) *Compiler { return &Compiler{opts: newOptions(opts)} }

// Parse is the function Parse; Compile of its result is free. Its options are applied after the compiler's options.
func (c *Compiler) Parse(name string, text []byte, opts ...Option) (*File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.opts
	for _, opt := range opts {
		opt(&o)
	}
	file, set, r := read(name, text, o)
	if err := r.err(); err != nil {
		return nil, err
	}
	c.file, c.set = *file, set
	return file, nil
}

// Compile is the function Compile. It returns the previous set if the file is the same, or a copy that shares
// its rules: do not change a file, or anything it points to, after it was compiled here.
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

// same reports whether two files surely have the same content, whatever their names.
func same(a, b *File) bool {
	if len(a.Rules) != len(b.Rules) || unsafe.SliceData(a.Rules) != unsafe.SliceData(b.Rules) {
		return false
	}
	x, y := *a, *b
	x.Rules, y.Rules, x.Name, y.Name = nil, nil, "", ""
	return reflect.DeepEqual(x, y)
}
