package cli

import "fmt"

// keptFiles is how many open files are kept for all that is no connection of a client: Redis,
// files of rules, logs, the sockets that listen. A process that may have few keeps a quarter.
const keptFiles = 128

// A need is files that a ceiling lets clients open.
type need struct {
	flag string
	most *int
}

// needs are those of the doors that are open. A request at the upstream is a connection too.
func (f *serveFlags) needs() (list []need) {
	for _, door := range f.all() {
		if door.addr != "" {
			list = append(list, need{door.name + "-max-connections", &door.connections})
		}
	}
	if f.gateway.addr != "" {
		list = append(list, need{"upstream-max-requests", &f.upstreamRequests})
	}
	return list
}

// fit lowers the ceilings until what they let clients open leaves files for the process itself:
// without one more file it reaches no Redis, and nobody reaches its /readyz. Those that were
// not given give way first. It says which were lowered, and to what.
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

// lower divides files among ceilings, in proportion to what they were.
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

// fitFiles is [serveFlags.fit] for the files that this process may open.
func (v *server) fitFiles(given func(flag string) bool) {
	files, ok := openFiles()
	if !ok {
		return
	}
	if lowered := v.flags.fit(files, given); lowered != nil {
		v.log.Info("ceilings are lowered to what this process may open; ulimit -n gives it more", append([]any{"files", files}, lowered...)...)
	}
}
