package redissource

import (
	"fmt"
	"strings"
	"testing"
)

// forwards are hashes of services and routes.
func forwards(texts map[string]string) map[string]reading {
	found := make(map[string]reading)
	for name, text := range texts {
		fields := make(map[string]string)
		for pair := range strings.SplitSeq(text, "; ") {
			field, value, _ := strings.Cut(pair, "=")
			fields[field] = value
		}
		if strings.Contains(name, ":") {
			fields["configType"] = strings.ToUpper(name[:strings.Index(name, ":")])
		}
		if fields["enabled"] == "" {
			fields["enabled"] = "true"
		}
		found[prefix+name] = reading{fields: fields}
	}
	return found
}

// forwarded is which services and routes are in force, and what is wrong.
func forwarded(t *table) (inForce, wrong string) {
	n := t.contents()
	var list []string
	for _, s := range n.File.Services {
		list = append(list, fmt.Sprint(s.Name, " ", strings.Join(s.Addresses, "+")))
	}
	for _, r := range n.File.Routes {
		list = append(list, fmt.Sprint(r.Name, "→", r.Service, " ", r.Host, r.Path, r.Method, r.StripPrefix, r.AddPrefix, r.MaxBody))
	}
	if n.Warning != nil {
		wrong = n.Warning.Error()
	}
	return strings.Join(list, ", "), wrong
}

func TestServicesAndRoutesInHashes(t *testing.T) {
	table := newTable(prefix, 20)
	all := map[string]string{
		"service:order": "addresses=http://a:1 weight 2,  http://b:1; balance=LEAST_REQUESTS; retries=2; failures=3; " +
			"connectTimeout=1s; headerTimeout=2s; totalTimeout=3s; idleTimeout=2s; ejectTime=4s; ejectTimeMax=5s; " +
			"checkPath=/ok; checkInterval=6s; checkStatus=204; remark=x",
		"route:pay":  "path=/api/pay; service=order; method=GET,POST; host=a.example, *.b.example; stripPrefix=/api; addPrefix=/v2; maxBody=10MiB",
		"route:rest": "service=order",
		"limit":      "limitType=GLOBAL; limitCount=5; timeWindow=60; strategy=GCRA",
	}
	read(table, forwards(all))
	const want = "order http://a:1 weight 2+http://b:1, pay→order [a.example *.b.example]/api/pay[GET POST]/api/v210MiB, " +
		"rest→order [][]"
	got, wrong := forwarded(table)
	if got != want || wrong != "" {
		t.Errorf("%s\nwant %s\nwrong: %s", got, want, wrong)
	}
	n := table.contents()
	if s := fmt.Sprintf("%+v %d", n.File.Services[0], *n.File.Services[0].Retries); !strings.Contains(s, "Balance:least_requests") ||
		!strings.Contains(s, "{Connect:1s Header:2s Total:3s Idle:2s}") || !strings.Contains(s, "{Failures:3 Eject:4s EjectMax:5s Path:/ok Interval:6s Status:204}") ||
		!strings.HasSuffix(s, " 2") || len(n.File.Rules) != 1 {
		t.Error(s)
	}
	before := n.Revision
	all["route:rest"] = "service=order; path=/rest"
	read(table, forwards(all))
	if table.contents().Revision == before {
		t.Error("another route is the same revision")
	}

	// A mistake keeps the last good version; a route without its service, or with another's requests, is left out.
	all["service:order"] = "addresses=a:1; retries=9; adresses=x"
	all["route:other"] = "service=none; path=/other"
	all["route:twin"] = "service=order; path=/rest"
	all["route:bad"] = "service=order; path=rest; stripPrefix=/x"
	all["route:off"] = "service=; enabled=false"
	read(table, forwards(all))
	got, wrong = forwarded(table)
	if want := strings.Replace(want, "rest→order [][]", "rest→order []/rest[]", 1); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for _, line := range []string{
		`rate_limit_config:service:order: address "a:1"; allowed: a URL with the scheme http, https or h2c`,
		`rate_limit_config:service:order: retries is "9"; allowed: a whole number from 0 to 3`,
		`last good version`,
		`rate_limit_config:route:other: service is "none", which is no service`,
		`rate_limit_config:route:twin: route "twin" matches requests that routes[1] ("rest") matches too`,
		`rate_limit_config:route:bad: path is "rest"`,
		`rate_limit_config:route:bad: stripPrefix is "/x"`,
	} {
		if !strings.Contains(wrong, line) {
			t.Errorf("%s\nlacks %s", wrong, line)
		}
	}
	if strings.Contains(wrong, "route:off") && !strings.Contains(wrong, "disabled") {
		t.Errorf("a disabled route: %s", wrong)
	}
	if n := table.contents(); n.LeftOut != 4 {
		t.Errorf("%d are left out", n.LeftOut)
	}

	// By messages.
	table.receive(`{"id":"route:pay","deleted":true}`)
	table.receive(`{"id":"service:order","configType":"SERVICE","addresses":"https://c","enabled":true}`)
	if got, _ := forwarded(table); got != "order https://c, rest→order []/rest[]" {
		t.Errorf("after messages: %s", got)
	}
}
