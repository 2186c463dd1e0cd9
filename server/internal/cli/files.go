package cli

import "fmt"

// keptFiles is how many open files are reserved for other uses than client connections: Redis,
// rule files, logs, listeners. With a low limit of files, a quarter is reserved.
const keptFiles = 128

// A need is a ceiling of connections, each of which takes an open file.
type need struct {
	flag string
	most *int
}

// needs are the ceilings of the listeners in use. A request at the upstream is a connection too.
func (f *serveFlags) needs() (list []need) {
	for _, listener := range f.all() {
		if listener.addr != "" {
			list = append(list, need{listener.name + "-max-connections", &listener.connections})
		}
	}
	if f.gateway.addr != "" {
		list = append(list, need{"upstream-max-requests", &f.upstreamRequests})
	}
	return list
}

// fit lowers the ceilings until they leave files for the process itself, which otherwise could
// not connect to Redis or answer /readyz. Defaults are lowered before ceilings given by flags.
// It returns the lowered flags with their values, for the log.
func (f *serveFlags) fit(files int, given func(flag string) bool) (lowered []any) {
	var all, defaults []need
	left := files - min(keptFiles, files/4)
	total, free := 0, left
	for _, n := range f.needs() {
		all, total = append(all, n), total+*n.most
		if given(n.flag) {
			free -= *n.most
			continue
		}
		defaults = append(defaults, n)
	}
	if total <= left {
		return nil
	}
	if share := left / 10; len(defaults) > 0 && free >= share {
		return lower(defaults, free)
	}
	return lower(all, left)
}

// lower divides files among ceilings, in proportion.
func lower(list []need, files int) (lowered []any) {
	total := 0
	for _, n := range list {
		total += *n.most
	}
	for _, n := range list {
		*n.most = max(1, int(int64(*n.most)*int64(files)/int64(total)))
		lowered = append(lowered, fmt.Sprint("--", n.flag), *n.most)
	}
	return lowered
}

// fitFiles applies [serveFlags.fit] to the limit of open files of this process.
func (v *server) fitFiles(given func(flag string) bool) {
	files, ok := openFiles()
	if !ok {
		return
	}
	if lowered := v.flags.fit(files, given); lowered != nil {
		v.log.Info("connection limits lowered to fit the limit of open files; raise it with ulimit -n",
			append([]any{"files", files}, lowered...)...)
	}
}
