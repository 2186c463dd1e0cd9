package accesslog

import (
	"maps"
	"slices"
)

// A row of the table is a format: a template of lines of text, or the places of values in lines of JSON.
type row struct {
	name     string
	template string // as Options.Format
	places   string // as Options.Map; a name with ! has to be in the log
	timeIs   TimeIs // without a start or a duration
	open     bool   // more may follow
}

const (
	common   = `$remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent`
	combined = common + ` "$http_referer" "$http_user_agent"`
	// Envoy's formats do not escape quotes, and have no address of the connection, which Envoy appends to
	// X-Forwarded-For.
	envoyFlags     = `escape=none [$start] "$request" $status $response_flags `
	envoyAddresses = `"$forwarded" "$http_user_agent" "$request_id" "$host" "$upstream_host"`
)

// rows are in the order of their trial: a line of vhost_common could be a line of common with a space in the user.
// Sources:
// https://nginx.org/en/docs/http/ngx_http_log_module.html,
// https://kubernetes.github.io/ingress-nginx/user-guide/nginx-configuration/log-format/,
// https://httpd.apache.org/docs/2.4/mod/mod_log_config.html,
// https://doc.traefik.io/traefik/observe/logs-and-access-logs/,
// https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage,
// https://istio.io/latest/docs/tasks/observability/logs/access-log/,
// https://docs.haproxy.org/3.2/configuration.html#8.2.3,
// https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html.
var rows = []row{
	{name: "main", template: combined + ` "$http_x_forwarded_for"`, timeIs: End},
	{name: "ingress-nginx", template: combined + ` $request_length $request_time [$upstream_name]` +
		` [$upstream_alternative_name] $upstream_addr $upstream_response_length $upstream_response_time` +
		` $upstream_status $req_id`},
	{name: "vhost_combined", template: `$server_name:$port ` + combined, timeIs: Start},
	{name: "vhost_common", template: `$server_name:$port ` + common, timeIs: Start},
	{name: "combined", template: combined, timeIs: Either},
	{name: "common", template: common, timeIs: Either},
	{name: "traefik", template: `escape=none $remote_addr $ident $remote_user [$start] "$request" $status` +
		` $body_bytes_sent "$http_referer" "$http_user_agent" $count "$router" "$server" ${took_ms}ms`},
	{name: "envoy", template: envoyFlags + `$received $bytes_sent $took_ms $upstream_took ` + envoyAddresses},
	{name: "istio", template: envoyFlags + `$details $termination "$failure" $received $bytes_sent $took_ms` +
		` $upstream_took ` + envoyAddresses + ` $cluster $upstream_local $local $remote_addr $sni $route`},
	{name: "haproxy", open: true, template: `escape=haproxy $client_and_port [$start] $frontend $backend` +
		` $TR/$Tw/$Tc/$Tr/$took_ms $status $bytes_sent $CC $CS $termination $connections $queues "$request"`},
	{name: "alb", open: true, template: `$type $end $elb $client_and_port $upstream` +
		` $request_processing $target_processing $response_processing $status $target_status $received $bytes_sent` +
		` "$request" "$http_user_agent" $cipher $protocol $target_group "$trace" "$domain" "$certificate" $priority` +
		` $start `},
	{name: "caddy", timeIs: End, places: `method!=.request.method,path!=.request.uri,end!=.ts,took=.duration,` +
		`client=.request.client_ip|.request.remote_ip|.request.remote_addr,user=.user_id,host=.request.host,` +
		`status=.status,bytes=.size,headers=.request.headers`},
	{name: "traefik-json", timeIs: Start, places: `start!=.StartUTC,method!=.RequestMethod,path!=.RequestPath,` +
		`took_ns=.Duration,client=.ClientHost|.ClientAddr,user=.ClientUsername,host=.RequestHost|.RequestAddr,` +
		`status=.DownstreamStatus,bytes=.DownstreamContentSize,agent=.request_User-Agent,` +
		`header.Referer=.request_Referer,header.X-Forwarded-For=.request_X-Forwarded-For`},
	{name: "logpush", timeIs: Start, places: `start!=.EdgeStartTimestamp,client!=.ClientIP,end=.EdgeEndTimestamp,` +
		`method=.ClientRequestMethod,host=.ClientRequestHost,path=.ClientRequestURI|.ClientRequestPath,` +
		`status=.EdgeResponseStatus,bytes=.EdgeResponseBytes,agent=.ClientRequestUserAgent,` +
		`header.Referer=.ClientRequestReferer`},
	{name: "envoy-json", timeIs: Start, places: `start!=.start_time,status!=.response_code,took_ms=.duration,` +
		`client=.downstream_remote_address|.downstream_direct_remote_address,method=.method,` +
		`host=.authority|.:authority,path=.path|.x-envoy-origin-path,bytes=.bytes_sent,agent=.user_agent|.user-agent,` +
		`header.X-Forwarded-For=.x_forwarded_for|.x-forwarded-for`},
	{name: "ratelimit", timeIs: Start, places: `domain!=.request.domain|.domain,` +
		`descriptors!=.request.descriptors|.descriptors,` +
		`hits=.request.hitsAddend|.request.hits_addend|.hitsAddend|.hits_addend,` +
		`start=.time|.start_time|.timestamp|.@timestamp|.ts`},
	{name: "json", timeIs: Either, places: `start=.start_time|.startTime,` +
		`end=.msec|.time_iso8601|.time_local|.@timestamp|.timestamp|.time|.ts|.datetime,` +
		`took=.request_time|.httpRequest.latency,took_ms=.duration_ms|.latency_ms,` +
		`client=.remote_addr|.remote_ip|.client_ip|.clientip|.remoteAddr|.remote_address|.remote_host|` +
		`.httpRequest.remoteIp|.client.ip|.source.ip|.client|.ip|.remoteIP,` +
		`user=.remote_user|.user.name|.username|.user,` +
		`path=.request_uri|.uri|.httpRequest.requestUrl|.url.original|.url|.request_path|.path,` +
		`query=.query_string|.args|.query,` +
		`method=.request_method|.method|.verb|.httpRequest.requestMethod|.http.request.method,` +
		`request=.request|.request_line,host=.http_host|.host|.server_name|.vhost|.authority|.url.domain,` +
		`status=.status|.status_code|.response_code|.httpRequest.status|.http.response.status_code,` +
		`bytes=.body_bytes_sent|.bytes_sent|.bytes|.size|.response_size|.httpRequest.responseSize,` +
		`agent=.http_user_agent|.user_agent|.userAgent|.agent|.httpRequest.userAgent|.user_agent.original,` +
		`header.Referer=.http_referer|.http_referrer|.referer|.referrer|.httpRequest.referer,` +
		`header.X-Forwarded-For=.http_x_forwarded_for|.x_forwarded_for`},
}

// names are what values are called in a map and in a template.
var names = map[string]variable{
	"client": {field: client}, "client_and_port": {field: clientAndPort}, "user": {field: user},
	"forwarded": {field: lastForwarded, header: "X-Forwarded-For"}, "method": {field: method}, "host": {field: host},
	"path": {field: target}, "query": {field: query}, "request": {field: request}, "time": {field: end},
	"end": {field: end}, "start": {field: start}, "took": {field: took}, "took_ms": {field: tookMillis},
	"took_us": {field: tookMicros}, "took_ns": {field: tookNanos}, "status": {field: status}, "bytes": {field: size},
	"agent": {field: agent, header: "User-Agent"}, "headers": {field: headers},
	"domain": {field: domain}, "descriptors": {field: descriptors}, "hits": {field: addend},
}

// MapFields are the names that Options.Map may have; header.NAME too.
func MapFields() []string { return append(slices.Sorted(maps.Keys(names)), "header.NAME") }

// nginxVariables are the variables with a meaning here. nginx writes the line when the request has ended.
// https://nginx.org/en/docs/varindex.html
var nginxVariables = map[string]variable{
	"remote_addr":        {field: client, rank: 1},
	"realip_remote_addr": {field: client},
	"remote_user":        {field: user},
	"time_local":         {field: end},
	"time_iso8601":       {field: end},
	"msec":               {field: end, rank: 1},
	"request":            {field: request},
	"request_method":     {field: method},
	"request_uri":        {field: target},
	"uri_and_args":       {field: target},
	"uri":                {field: path},
	"document_uri":       {field: path},
	"args":               {field: query},
	"query_string":       {field: query},
	"host":               {field: host, rank: 2},
	"http_host":          {field: host, rank: 1},
	"server_name":        {field: host},
	"status":             {field: status},
	"bytes_sent":         {field: size},
	"body_bytes_sent":    {field: size, rank: 1},
	"request_time":       {field: took},
	"limit_req_status":   {field: header, header: "Limit-Req-Status"}, // of no request: what limits did
	"limit_conn_status":  {field: header, header: "Limit-Conn-Status"},
	"http_user_agent":    {field: agent, header: "User-Agent"},
}

// apacheDirectives are the directives with a meaning here. Apache's time is the start.
// https://httpd.apache.org/docs/2.4/mod/mod_log_config.html
var apacheDirectives = map[string]variable{
	"a":          {field: client, rank: 2},
	"h":          {field: client, rank: 1}, // a name with HostnameLookups
	"{c}a":       {field: client},
	"u":          {field: user},
	"t":          {field: start},
	"{sec}t":     {field: start},
	"{msec}t":    {field: start, rank: 1},
	"{usec}t":    {field: start, rank: 2},
	"r":          {field: request},
	"m":          {field: method},
	pathAndQuery: {field: target},
	"U":          {field: path},
	"q":          {field: query},
	"V":          {field: host},
	"v":          {field: host, rank: 1},
	"{Host}i":    {field: host, rank: 2},
	"s":          {field: status},
	"b":          {field: size, rank: 2},
	"B":          {field: size, rank: 1},
	"O":          {field: size},
	"D":          {field: tookMicros},
	"{us}T":      {field: tookMicros},
	"{ms}T":      {field: tookMillis},
	"T":          {field: took},
	"{s}T":       {field: took},
	"User-Agent": {field: agent, header: "User-Agent"},
}
