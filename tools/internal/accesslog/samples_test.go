package accesslog

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// show is a record as text, without what the log does not have.
func show(r Record) string {
	out := []string{time.UnixMicro(r.Time).UTC().Format("2006-01-02T15:04:05.999999Z")}
	add := func(name string, value any, known bool) {
		if known {
			out = append(out, fmt.Sprintf("%s=%v", name, value))
		}
	}
	add("took", time.Duration(r.Took)*time.Microsecond, r.Took != Unknown)
	add("client", r.Client, r.Client.IsValid())
	add("user", r.User, r.User != "")
	add("method", r.Method, r.Method != "")
	add("host", r.Host, r.Host != "")
	add("target", r.Target, r.Target != "")
	add("status", r.Status, r.Status != Unknown)
	add("bytes", r.Bytes, r.Bytes != Unknown)
	for _, d := range r.Descriptors {
		one := r.Domain + ":"
		for i := range d.Keys {
			one += fmt.Sprintf(" %s=%s", d.Keys[i], d.Values[i])
		}
		if d.Hits == Unknown {
			d.Hits = r.Hits
		}
		out = append(out, fmt.Sprintf("%s *%d", one, d.Hits))
	}
	for _, f := range r.Fields {
		add(f.Name, f.Value, f.Name != "User-Agent" || f.Value == r.Agent)
	}
	return strings.Join(out, " ")
}

// samples are lines of the products' documentation, and what they say.
var samples = []struct {
	format, text, want string
	timeIs             TimeIs
	resolution         time.Duration
}{
	{"common", `127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326`,
		`2000-10-10T20:55:36Z client=127.0.0.1 user=frank method=GET target=/apache_pb.gif status=200 bytes=2326`,
		Either, time.Second},
	{"combined", `127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 ` +
		`"http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"`,
		`2000-10-10T20:55:36Z client=127.0.0.1 user=frank method=GET target=/apache_pb.gif status=200 bytes=2326 ` +
			`Referer=http://www.example.com/start.html User-Agent=Mozilla/4.08 [en] (Win98; I ;Nav)`, Either, time.Second},
	{"vhost_combined", `www.example.com:443 2001:db8::7 - - [10/Oct/2000:13:55:36 +0200] "GET /a HTTP/1.1" 200 5 "-" "x \"y\" \\z\xc3\xa4"`,
		`2000-10-10T11:55:36Z client=2001:db8::7 method=GET host=www.example.com target=/a status=200 bytes=5 User-Agent=x "y" \zä`,
		Start, time.Second},
	{"vhost_common", `www.example.com:80 10.0.0.1 - - [10/Oct/2000:13:55:36 +0000] "OPTIONS * HTTP/1.1" 200 -`,
		`2000-10-10T13:55:36Z client=10.0.0.1 method=OPTIONS host=www.example.com target=* status=200`, Start, time.Second},
	{"main", `203.0.113.9 - - [10/Oct/2000:13:55:36 +0000] "GET /caf\xC3\xA9?q=\x22a b\x22 HTTP/1.1" 499 0 "-" "curl/8" "198.51.100.1, 10.0.0.2"`,
		`2000-10-10T13:55:36Z client=203.0.113.9 method=GET target=/café?q="a b" status=499 bytes=0 User-Agent=curl/8 ` +
			`X-Forwarded-For=198.51.100.1, 10.0.0.2`, End, time.Second},
	{"ingress-nginx", `192.168.1.9 - - [10/Oct/2022:13:55:36 +0000] "GET /a HTTP/1.1" 200 612 "-" "curl/7.81.0" 85 0.250 ` +
		`[default-web-80] [] 10.244.0.7:80, 10.244.0.8:80 0, 612 0.000, 0.250 502, 200 6c0c1ea1a9c34b0d1e9a`,
		`2022-10-10T13:55:35.75Z took=250ms client=192.168.1.9 method=GET target=/a status=200 bytes=612 User-Agent=curl/7.81.0`,
		Start, time.Second},
	{"traefik", `192.0.2.4 - bob [13/Apr/2016:07:14:19 -0700] "POST /login HTTP/1.1" 401 12 "-" "agent" 1 "web@docker" "http://127.0.0.1/s" 12ms`,
		`2016-04-13T14:14:19Z took=12ms client=192.0.2.4 user=bob method=POST target=/login status=401 bytes=12 User-Agent=agent`,
		Start, time.Second},
	{"envoy", `[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" ` +
		`"cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80"`,
		`2016-04-15T20:17:00.31Z took=226ms client=10.0.35.28 method=POST host=locations target=/api/v1/locations status=204 ` +
			`bytes=0 X-Forwarded-For=10.0.35.28 User-Agent=nsq2http`, Start, time.Millisecond},
	{"istio", `[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 4 4 "-" "curl/7.73.0-DEV" ` +
		`"84961386-6d84-929d-98bd-c5aee93b5c88" "httpbin:8000" "10.44.1.27:80" outbound|8000||httpbin.foo.svc.cluster.local ` +
		`10.44.1.23:37652 10.0.45.184:8000 10.44.1.23:46520 - default`,
		`2020-11-25T21:26:18.409Z took=4ms client=10.44.1.23 method=GET host=httpbin:8000 target=/status/418 status=418 bytes=135 ` +
			`User-Agent=curl/7.73.0-DEV`, Start, time.Millisecond},
	{"haproxy", `Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 ` +
		`10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"`,
		`2009-02-06T12:14:14.655Z took=109ms client=10.0.1.2 method=GET target=/index.html status=200 bytes=2750`,
		Start, time.Millisecond},
	{"haproxy", `<134>1 2009-02-06T12:14:14Z host haproxy 14389 - - 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] in in/<NOSRV> ` +
		`-1/-1/-1/-1/0 503 217 - - SC-- 1/1/1/1/0 0/0 "GET / HTTP/1.1"`,
		`2009-02-06T12:14:14.655Z took=0s client=10.0.1.2 method=GET target=/ status=503 bytes=217`,
		Start, time.Millisecond},
	{"haproxy", `2001:db8::1:4431 [06/Feb/2009:12:14:14.655] https~ s/<NOSRV> -1/-1/-1/-1/+5001 -1 +0 - - cR-- 2/2/0/0/0 0/0 ` +
		`"GET https://shop.example.com/a#22b HTTP/2.0"`,
		`2009-02-06T12:14:14.655Z took=5.001s client=2001:db8::1 method=GET host=shop.example.com target=/a"b bytes=0`,
		Start, time.Millisecond},
	{"alb", `http 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.000 0.001 ` +
		`0.000 200 200 34 366 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.46.0" - - ` +
		`arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 ` +
		`"Root=1-58337262-36d228ad5d99923122bbe354" "-" "-" 0 2018-07-02T22:22:48.364000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-"`,
		`2018-07-02T22:22:48.364Z took=11.822641s client=192.168.131.39 method=GET host=www.example.com:80 target=/ status=200 ` +
			`bytes=366 User-Agent=curl/7.46.0`, Start, time.Microsecond},
	{"caddy", `{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":` +
		`{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"192.0.2.8","proto":"HTTP/2.0","method":"GET","host":"localhost",` +
		`"uri":"/","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*"],"x-twice":["a","b"]},"tls":{"resumed":false,"version":772}},` +
		`"bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}`,
		`2022-03-09T21:30:01.523173Z took=929µs client=192.0.2.8 method=GET host=localhost target=/ status=200 bytes=10900 ` +
			`User-Agent=curl/7.82.0 Accept=*/* X-Twice=a X-Twice=b`, Start, time.Microsecond},
	{"traefik-json", `{"ClientAddr":"[::1]:61234","ClientHost":"::1","ClientPort":"61234","ClientUsername":"-","DownstreamContentSize":60,` +
		`"DownstreamStatus":200,"Duration":1482311,"RequestAddr":"localhost","RequestHost":"localhost","RequestMethod":"GET",` +
		`"RequestPath":"/api?x=1","RequestProtocol":"HTTP/1.1","StartLocal":"2024-01-02T04:04:05.5+01:00",` +
		`"StartUTC":"2024-01-02T03:04:05.123456789Z","level":"info","request_User-Agent":"curl/8","time":"2024-01-02T03:04:05Z"}`,
		`2024-01-02T03:04:05.123456Z took=1.482ms client=::1 method=GET host=localhost target=/api?x=1 status=200 bytes=60 ` +
			`User-Agent=curl/8`, Start, time.Microsecond},
	{"logpush", `{"ClientIP":"89.163.242.206","ClientRequestHost":"www.theburritobot.com","ClientRequestMethod":"GET",` +
		`"ClientRequestURI":"/static/img/testimonial-hipster.png","EdgeEndTimestamp":1506702504461999900,"EdgeResponseBytes":69045,` +
		`"EdgeResponseStatus":200,"EdgeStartTimestamp":1506702504433000200,"RayID":"3a6050bcbe121a87"}`,
		`2017-09-29T16:28:24.433Z took=28.999ms client=89.163.242.206 method=GET host=www.theburritobot.com ` +
			`target=/static/img/testimonial-hipster.png status=200 bytes=69045`, Start, time.Microsecond},
	{"logpush", `{"ClientIP":"2001:db8::1","ClientRequestMethod":"GET","ClientRequestURI":"/a","EdgeStartTimestamp":"2017-09-29T16:28:24Z",` +
		`"EdgeEndTimestamp":"2017-09-29T16:28:25Z","EdgeResponseStatus":403}`,
		`2017-09-29T16:28:24Z took=1s client=2001:db8::1 method=GET target=/a status=403`, Start, time.Second},
	{"envoy-json", `{"start_time":"2024-05-06T07:08:09.123Z","method":"GET","path":"/get","protocol":"HTTP/1.1","response_code":"200",` +
		`"response_flags":"-","bytes_received":"0","bytes_sent":"500","duration":"7","x_forwarded_for":"10.1.1.1","user_agent":"curl/8",` +
		`"authority":"www.example.com","downstream_remote_address":"10.1.1.1:50112","upstream_host":null}`,
		`2024-05-06T07:08:09.123Z took=7ms client=10.1.1.1 method=GET host=www.example.com target=/get status=200 bytes=500 ` +
			`X-Forwarded-For=10.1.1.1 User-Agent=curl/8`, Start, time.Millisecond},
	{"envoy-json", `{"start_time":"2024-05-06T07:08:09.123Z","method":"GET","x-envoy-origin-path":"/get","response_code":200,"bytes_sent":5,` +
		`"duration":7,"x-forwarded-for":"10.1.1.1","user-agent":"curl/8",":authority":"www.example.com","downstream_remote_address":"10.1.1.1:50112"}`,
		`2024-05-06T07:08:09.123Z took=7ms client=10.1.1.1 method=GET host=www.example.com target=/get status=200 bytes=5 ` +
			`X-Forwarded-For=10.1.1.1 User-Agent=curl/8`, Start, time.Millisecond},
	{"ratelimit", `{"time":"2026-11-28T06:00:00.5Z","answer":{"overallCode":"OK"},"request":{"domain":"edge","hitsAddend":2,"descriptors":[` +
		`{"entries":[{"key":"plan","value":"free"},{"key":"remote_address","value":"203.0.113.7"}],"hits_addend":"3"},{"entries":[{"key":"a","value":"]}\""}]}]}}`,
		`2026-11-28T06:00:00.5Z client=203.0.113.7 edge: plan=free remote_address=203.0.113.7 *3 edge: a=]}" *2`, Start, time.Millisecond},
	{"ratelimit", `{"domain":"edge","descriptors":[{"entries":[{"key":"plan","value":"free"}]}]}`,
		`1970-01-01T00:00:00.002Z edge: plan=free *-1`, Order, time.Millisecond},
	{"json", `{"time":"10/Oct/2000:13:55:36 -0700","remote_addr":"192.0.2.1","request":"GET /a\u00e4\ud83d\ude00?b=\"c\" HTTP/1.1","status":"404",` +
		`"extra":[1,{"a":[true,false,null,-1.5e3]}]}`,
		`2000-10-10T20:55:36Z client=192.0.2.1 method=GET target=/aä😀?b="c" status=404`, Either, time.Second},
	{"json", `{"ts":1700000000,"ip":"192.0.2.1","method":"GET","uri":"/a","status":0}`,
		`2023-11-14T22:13:20Z client=192.0.2.1 method=GET target=/a`, Either, time.Second},
	{"json", `{"@timestamp":"2026-11-20T00:00:01.5Z","client":{"ip":"192.0.2.1"},"url":{"original":"/a"},"http":{"request":{"method":"PUT"},` +
		`"response":{"status_code":201}},"user":{"name":"ann"},"user_agent":{"original":"x"}}`,
		`2026-11-20T00:00:01.5Z client=192.0.2.1 user=ann method=PUT target=/a status=201 User-Agent=x`, Either, time.Millisecond},
	{"json", `{"httpRequest":{"requestMethod":"GET","requestUrl":"https://example.com/a?b=c","status":200,"responseSize":"16","userAgent":"x",` +
		`"remoteIp":"192.0.2.1","latency":"0.250s"},"timestamp":"2026-11-20T00:00:01.500000Z"}`,
		`2026-11-20T00:00:01.25Z took=250ms client=192.0.2.1 method=GET host=example.com target=/a?b=c status=200 bytes=16 User-Agent=x`,
		Start, time.Microsecond},
}

func TestSamplesOfProducts(t *testing.T) {
	seen := make(map[string]bool)
	for _, sample := range samples {
		seen[sample.format] = true
		for _, named := range []string{"", sample.format} {
			l, err := Open([]string{"-"}, strings.NewReader(sample.text+"\r\n"), Options{Format: named})
			if err != nil {
				t.Errorf("%s: %v", sample.format, err)
				continue
			}
			list := all(t, l)
			file := l.Files()[0]
			if len(list) != 1 || show(list[0]) != sample.want {
				t.Errorf("%s: read %d requests\n got %s\nwant %s\n%+v", sample.format, len(list), show(append(list, Record{})[0]),
					sample.want, file)
			}
			if file.Format != sample.format || file.TimeIs != sample.timeIs || file.Resolution != sample.resolution || file.Unread != 0 {
				t.Errorf("%s: %+v", sample.format, file)
			}
		}
	}
	for _, name := range Formats() {
		if !seen[name] {
			t.Errorf("%s has no sample", name)
		}
	}
}
