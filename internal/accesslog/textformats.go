package accesslog

import "strings"

// A textFormat is a line of text with a fixed shape.
type textFormat struct {
	name    string
	pattern string
	timeIs  TimeIs // without a start or a duration
	escape  escape
	open    bool // more may follow
	// find, if not nil, is the part of the line that has the format.
	find func(line string) string
}

const (
	commonPattern   = `$remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent`
	combinedPattern = commonPattern + ` "$http_referer" "$http_user_agent"`
	envoyFlags      = `[$start] "$request" $status $response_flags `
	envoyAddresses  = `"$forwarded" "$http_user_agent" "$request_id" "$host" "$upstream_host"`
)

// textFormats are in the order in which they are tried: a line of vhost_common could be one of common whose user has a
// space. Sources:
// https://nginx.org/en/docs/http/ngx_http_log_module.html,
// https://kubernetes.github.io/ingress-nginx/user-guide/nginx-configuration/log-format/,
// https://httpd.apache.org/docs/2.4/mod/mod_log_config.html,
// https://doc.traefik.io/traefik/observe/logs-and-access-logs/,
// https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage,
// https://istio.io/latest/docs/tasks/observability/logs/access-log/,
// https://docs.haproxy.org/3.2/configuration.html#8.2.3,
// https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html.
var textFormats = []textFormat{
	{name: "main", pattern: combinedPattern + ` "$http_x_forwarded_for"`, timeIs: End, escape: backslash},
	{name: "ingress-nginx", escape: backslash, pattern: combinedPattern + ` $request_length $request_time` +
		` [$upstream_name] [$upstream_alternative_name] $upstream_addr $upstream_response_length` +
		` $upstream_response_time $upstream_status $req_id`},
	{name: "vhost_combined", pattern: `$server_name:$port ` + combinedPattern, timeIs: Start, escape: backslash},
	{name: "vhost_common", pattern: `$server_name:$port ` + commonPattern, timeIs: Start, escape: backslash},
	{name: "combined", pattern: combinedPattern, timeIs: Either, escape: backslash},
	{name: "common", pattern: commonPattern, timeIs: Either, escape: backslash},
	{name: "traefik", pattern: strings.Replace(combinedPattern, "time_local", "start", 1) +
		` $count "$router" "$server" ${took_ms}ms`},
	{name: "envoy", pattern: envoyFlags + `$received $bytes_sent $took_ms $upstream_took ` + envoyAddresses},
	{name: "istio", pattern: envoyFlags + `$details $termination "$failure" $received $bytes_sent $took_ms` +
		` $upstream_took ` + envoyAddresses + ` $cluster $upstream_local $local $remote_addr $sni $route`},
	{name: "haproxy", find: findHAProxy, escape: numberSign, open: true, pattern: `$client_and_port [$start]` +
		` $frontend $backend $TR/$Tw/$Tc/$Tr/$took_ms $status $bytes_sent $CC $CS $termination $connections` +
		` $queues "$request"`},
	{name: "alb", escape: backslash, open: true, pattern: `$type $end $elb $client_and_port $target` +
		` $request_processing $target_processing $response_processing $status $target_status $received $bytes_sent` +
		` "$request" "$http_user_agent" $cipher $protocol $target_group "$trace" "$domain" "$certificate" $priority` +
		` $start `},
}

// productVariables are those that nginx does not have.
var productVariables = map[string]variable{
	"start":           {field: start},
	"end":             {field: end},
	"took_ms":         {field: tookMillis},
	"client_and_port": {field: clientAndPort},
	// Envoy's text format has no address of the connection. Envoy appends it to X-Forwarded-For.
	"forwarded": {field: lastForwarded, header: "X-Forwarded-For"},
}

func productVariable(name string) variable {
	if v, known := productVariables[name]; known {
		return v
	}
	return nginxVariable(name)
}

func (f textFormat) format() format {
	t, err := patternTemplate(f.pattern, productVariable, f.escape)
	if err != nil {
		panic(err) // of the table above: each call of Open compiles all of it
	}
	t.open = f.open
	read := t.read
	if f.find != nil {
		read = func(line string, d *draft) error { return t.read(f.find(line), d) }
	}
	return format{name: f.name, timeIs: t.timeIs(f.timeIs), read: read}
}

// findHAProxy reads past what syslog writes before the address of the client, which is before the time:
// [06/Feb/2009:12:14:14.655].
func findHAProxy(line string) string {
	for from := 0; ; {
		at := strings.Index(line[from:], " [")
		if at < 0 {
			return line
		}
		at += from
		from = at + 2
		if len(line) > at+10 && line[at+4] == '/' && line[at+8] == '/' {
			return line[1+strings.LastIndexByte(line[:at], ' '):]
		}
	}
}
