package listen

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/weirproject/weir"
)

// openPassed makes a listener of a passed socket, which no other listener gets then.
func (c Config) openPassed(name string) (net.Listener, error) {
	file := c.Passed[name]
	if file == nil {
		names := slices.Sorted(maps.Keys(c.Passed))
		return nil, &weir.InputError{Field: "address", Given: c.Address, Allowed: fmt.Sprintf("fd: and the name of a "+
			"socket that the service manager passed and no other listener has; these are %q",
			strings.Join(names, ", "))}
	}
	delete(c.Passed, name)
	defer file.Close()
	return net.FileListener(file)
}
