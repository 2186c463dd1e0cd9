package cli

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/program"
)

// announce prints the banner, or with --log-format json logs the same as one line.
func (v *server) announce() {
	if v.engine.LogFormat == "json" {
		args := []any{"version", version(), "store", engine.Masked(v.engine.Store),
			"rules", len(v.engine.Gate.Rules().Rules())}
		for _, p := range v.where {
			args = append(args, p.name, p.address)
		}
		v.log.Info("serving", args...)
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "weir %s\n\n", version())
	table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(table, "  store\t%s\n", v.storeLine())
	fmt.Fprintf(table, "  rules\t%s\n", v.rulesLine())
	for _, p := range v.where {
		fmt.Fprintf(table, "  %s\t%s\n", p.name, p.address+v.purpose(p.name))
	}
	table.Flush()
	b.WriteString("\n" + v.next() + "\n")
	fmt.Fprint(v.system.Out, b.String())
}

func (v *server) storeLine() string {
	switch {
	case v.engine.State != "":
		return "memory of this process, saved in " + v.engine.State
	case v.engine.Store == engine.Memory:
		return "memory of this process; --store redis://… shares counts"
	}
	return engine.Masked(v.engine.Store)
}

// maxNames is how many rules are listed by name.
const maxNames = 8

func (v *server) rulesLine() string {
	list := v.engine.Gate.Rules().Rules()
	switch {
	case v.isRatelimit() && !v.limits.Loaded():
		return "none yet in " + v.engine.Source + ": requests are answered with an error"
	case len(list) == 0 && v.engine.Source != "":
		return "none yet in " + v.engine.Source + ": every request passes"
	case len(list) == 0:
		return "none: every request passes"
	}
	var names []string
	for _, rule := range list[:min(len(list), maxNames)] {
		name := rule.Name()
		if !rule.Enabled() {
			name += " (disabled)"
		} else if rule.Mode() != "enforce" {
			name += " (" + string(rule.Mode()) + ")"
		}
		names = append(names, name)
	}
	if len(list) > maxNames {
		names = append(names, fmt.Sprintf("and %d more", len(list)-maxNames))
	}
	return fmt.Sprintf("%d in %s: %s", len(list), v.engine.Source, strings.Join(names, ", "))
}

func (v *server) purpose(name string) string {
	switch name {
	case "http":
		if v.apart {
			return "   /v1/…, /v1/forward-auth, /console, /readyz"
		}
		return "   /v1/…, /v1/forward-auth, /console, /metrics, /readyz"
	case "metrics":
		return "   /metrics, /livez, /readyz"
	case "envoy.http":
		return "   /healthcheck, /json"
	case "envoy.debug":
		return "   /rlconfig, /stats, /debug/pprof/"
	case "gateway":
		return "   to " + v.targets()
	case "grpc":
		return "   Envoy's rate limit service, ext_authz and ext_proc, health, reflection"
	}
	return ""
}

// targets names the services of the gateway.
func (v *server) targets() string {
	var list []string
	if routes := v.engine.Gate.Rules().Routes(); len(routes) > 0 {
		list = append(list, program.Count(len(v.engine.Gate.Rules().Services()), "service")+" by "+
			program.Count(len(routes), "route"))
	}
	switch v.engine.Upstream {
	case "":
	case demo:
		list = append(list, "a built-in demo")
	default:
		list = append(list, v.engine.Upstream)
	}
	if len(list) == 0 {
		return "no service yet: the rules have no routes"
	}
	return strings.Join(list, ", else to ")
}

// next is the suggested next step: a request to try, or how to write the first rule.
func (v *server) next() string {
	if len(v.engine.Gate.Rules().Rules()) == 0 && !v.asked && !v.isRatelimit() {
		return v.firstRule()
	}
	line := v.try()
	if line == "" {
		return ""
	}
	return "Try it a few times:\n\n    " + line + "\n"
}

// try is a shell command. The README shows the same one.
func (v *server) try() string {
	for _, name := range []string{"gateway", "envoy.http", "http", "resp"} {
		for _, p := range v.where {
			if p.name == name {
				return v.tryAt(p)
			}
		}
	}
	return ""
}

func (v *server) tryAt(p endpoint) string {
	address, curl := p.address, "curl -i "
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		address, curl = "http://localhost", "curl -i --unix-socket "+path+" "
	}
	switch p.name {
	case "gateway":
		return curl + address + "/"
	case "envoy.http":
		return curl + address + `/json --json '{"domain": "edge", "descriptors": [{"entries": [{"key": "a", "value": ` +
			`"b"}]}]}'`
	case "http":
		if v.secrets.token != "" {
			curl += "-H \"Authorization: Bearer $WEIR_TOKEN\" "
		}
		return curl + address + `/v1/decide --json '{"request": {"client": "203.0.113.7", "path": "/"}}'`
	}
	return "redis-cli -u " + p.address + " CL.THROTTLE user:42 4 5 10"
}

const firstRules = `rules:
  - name: per-ip
    key: [client.ip]
    limit: 5/10s
`

// firstRule is a block to copy and paste. It overwrites no file.
func (v *server) firstRule() string {
	const file = "weir.yaml"
	serve := v.system.self() + " serve --config " + file + " --upstream demo"
	if _, err := os.Stat(file); err == nil {
		return "There is a " + file + " here. To use it:\n\n    " + serve + "\n"
	}
	// Not indented: a copied EOF must stand at the beginning of its line.
	return "To add a first rule, which allows each address 5 requests in 10 seconds:\n\n" +
		"cat > " + file + " <<'EOF'\n" + firstRules + "EOF\n" + serve + "\n"
}
