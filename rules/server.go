package rules

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/servicekind"
	"github.com/weirproject/weir/pathform"
)

// clientHeaders are the headers that proxies use for client addresses; "" is not stated.
var clientHeaders = []string{"", "X-Forwarded-For", "Forwarded", "X-Real-IP", "CF-Connecting-IP"}

// memory is the word for the store in the process.
const memory = "memory"

// schemes are the schemes of Redis URLs; redisstore reads the rest of the URL.
var schemes = []string{"redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel",
	"rediss+sentinel", "valkey", "valkeys", "valkey+cluster", "valkeys+cluster",
	"valkey+sentinel", "valkeys+sentinel"}

// server reads the fields about the server and its proxies.
func (b *builder) server(file *File) {
	b.set.server = &file.Server
	b.store(at(-1, "server.store"), file.Store)
	b.envoy(&file.Server)
	b.set.form = b.pathForm(at(-1, "server.path_form"), file.FormOfPaths())
	b.set.kind = word(b, at(-1, "service_kind"), file.ServiceKind, servicekind.Names())
	p := at(-1, proxiesField)
	if !b.count(p, len(file.TrustedProxies), bounds.Proxies) {
		return
	}
	b.set.proxies = b.prefixes(p, file.TrustedProxies)
	for j, text := range file.TrustedProxies {
		if prefix, bad := parsePrefix(text); bad == "" && prefix.Bits() == 0 {
			b.add(place{p.rule, p.field, j}, "%s has %v; allowed: the networks of your proxies: with all addresses "+
				"trusted, each client can choose its own", p.field, prefix)
		}
	}
}

// healthWords are the words of envoy.health.
var healthWords = []string{"config", "domain", "store"}

// metricsPath is a path without a pattern in it.
var metricsPath = regexp.MustCompile(`^(/[A-Za-z0-9_.~-]+)+$`)

// headerName is a name of a header field that every proxy accepts.
var headerName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// envoy checks the settings of weir ratelimit.
func (b *builder) envoy(s *Server) {
	for _, given := range s.EnvoyHealth {
		if !slices.Contains(healthWords, given) {
			b.add(at(-1, "server.envoy.health"), "server.envoy.health has %.80q; %s", given, oneOf(given, healthWords))
		}
	}
	if n := len(s.EnvoyHeaders); n != 0 && n != 3 {
		b.add(at(-1, "server.envoy.headers"), "server.envoy.headers has %d names; allowed: three, for limit, "+
			"remaining and reset", n)
	}
	for _, name := range s.EnvoyHeaders {
		if !headerName.MatchString(name) {
			b.add(at(-1, "server.envoy.headers"), "server.envoy.headers has %.80q; allowed: names of header "+
				"fields, of letters, digits, - and _", name)
		}
	}
	if s.EnvoyConfig != "" && s.XDSServer != "" {
		b.add(at(-1, "server.envoy.config"), "server.envoy.config and server.envoy.xds are both given; leave one out")
	}
	if p := s.MetricsPath; p != "" && (!metricsPath.MatchString(p) || p == "/livez" || p == "/readyz") {
		b.add(at(-1, "server.metrics.path"), "server.metrics.path is %.80q; allowed: a path such as "+
			"/stats/prometheus, but not /livez and /readyz", p)
	}
	for field, list := range map[string][]string{"metadata": s.XDSMetadata, "headers": s.XDSHeaders} {
		for j, given := range list {
			if key, _, ok := strings.Cut(given, "="); !ok || key == "" { // it may be a secret
				b.add(at(-1, "server.envoy.xds."+field), "server.envoy.xds.%s: value %d is wrong; allowed: KEY=VALUE",
					field, j+1)
			}
		}
	}
}

// FormOfPaths is PathForm or, if that is not stated, the form of ServiceKind.
func (file *File) FormOfPaths() []string {
	if len(file.PathForm) > 0 {
		return file.PathForm
	}
	return servicekind.Of(file.ServiceKind).Form
}

// pathForm reads the form of paths.
func (b *builder) pathForm(p place, words []string) pathform.Form {
	if !b.count(p, len(words), bounds.Values) {
		return pathform.Form{}
	}
	form, err := pathform.Parse(words)
	var input *weir.InputError
	if errors.As(err, &input) {
		b.add(p, "%s has %s; allowed: %s", p.field, input.Given, input.Allowed)
	}
	return form
}

// proxiesField may have the word unixPeers for peers on a Unix socket.
const (
	proxiesField = "server.trusted_proxies"
	unixPeers    = "unix"
)

// store checks the URL without opening it. It may hold a password, so errors do not repeat it.
func (b *builder) store(p place, text string) {
	if text == "" || text == memory {
		return
	}
	allowed := "memory, or a URL that begins with redis://, rediss:// (TLS), unix://, redis+cluster:// or " +
		"redis+sentinel://"
	scheme, rest, ok := strings.Cut(text, "://")
	switch {
	case !ok:
		b.add(p, "server.store is neither memory nor a URL; the URL of a host and a port begins with redis://; "+
			"allowed: %s", allowed)
	case !slices.Contains(schemes, scheme):
		b.add(p, "server.store has an unknown scheme; allowed: %s", allowed)
	case rest == "":
		b.add(p, "server.store names no server; such as redis://127.0.0.1:6379")
	}
}

// secrets match text that may be a password in a line: everything before the last @ of a URL, parameters of
// that name, and the value of store, which may be too malformed to locate the password in it.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`://(.*)@`),
	regexp.MustCompile(`(?i)password["']?\s*[=:]\s*([^&\s"']+)`),
	regexp.MustCompile(`^\s*["']?(?:store|url)["']?\s*:\s*([^{\s].*)$`),
	regexp.MustCompile(`[{,]\s*["']?(?:store|url)["']?\s*:\s*([^{,}\s][^,}]*)`),
}

// masked is a line without secrets. It keeps its length in characters, because carets point into it.
func masked(line string) string {
	if !strings.Contains(line, "://") && !strings.Contains(line, "store") &&
		!strings.Contains(line, "url") &&
		!strings.Contains(strings.ToLower(line), "password") {
		return line
	}
	for _, secret := range secrets {
		var b strings.Builder
		end := 0
		for _, found := range secret.FindAllStringSubmatchIndex(line, -1) {
			if strings.TrimSpace(line[found[2]:found[3]]) == memory {
				continue
			}
			b.WriteString(line[end:found[2]])
			end = found[3]
			b.WriteString(strings.Repeat("*", utf8.RuneCountInString(line[found[2]:end])))
		}
		line = b.String() + line[end:]
	}
	return line
}
