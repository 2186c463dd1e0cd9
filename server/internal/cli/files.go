package cli

import "github.com/weirproject/weir/rules"

// keptFiles is how many open files are reserved for other uses than client connections: Redis,
// rule files, logs, listeners. With a low limit of files, a quarter is reserved.
const keptFiles = 128

// A need is a ceiling of connections; each takes an open file.
type need struct {
	setting string
	most    *int
}

// defaultConnections is the default of these maxima.
const defaultConnections = 10_000

// needs are the ceilings of the listeners in use. A request at the upstream is a connection too.
func needs(s *rules.Server) (list []need) {
	listeners := listenersOf(s)
	for _, l := range listeners.all() {
		if l.Listen != "" {
			list = append(list, need{"server." + l.name + ".max_connections", &l.MaxConnections})
		}
	}
	if s.Gateway.Listen != "" {
		list = append(list, need{"server.upstream.max_requests", &s.UpstreamRequests})
	}
	return list
}

// fit lowers the ceilings until they leave files for the process itself, which otherwise could not connect to Redis or
// answer /readyz. Defaults are lowered before others. It returns the lowered settings with their values, for the log.
func fit(s *rules.Server, files int) (lowered []any) {
	var all, defaults []need
	left := files - min(keptFiles, files/4)
	total, free := 0, left
	for _, n := range needs(s) {
		all, total = append(all, n), total+*n.most
		if *n.most != defaultConnections {
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
		lowered = append(lowered, n.setting, *n.most)
	}
	return lowered
}

// fitFiles applies fit to the limit of open files of this process.
func (v *server) fitFiles() {
	files, ok := openFiles()
	if !ok {
		return
	}
	if lowered := fit(&v.engine.Server, files); lowered != nil {
		v.log.Info("connection limits lowered to fit the limit of open files; raise it with ulimit -n",
			append([]any{"files", files}, lowered...)...)
	}
}
