package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

const routed = `
server:
  path_form: ignore-case
services:
  - {name: order, addresses: [http://10.0.0.1:8080 weight 3, http://10.0.0.2:8080]}
  - {name: web, max_body: 64KiB, addresses: https://web.internal, retries: 0, tls: {verify: none}}
routes:
  - {name: pay, path: "/API/pay/**", method: [GET, POST], service: order, strip_prefix: /API, add_prefix: /v2}
  - {name: item, path: "/items/{id}", service: order}
  - {name: new, path: /items/new, service: order}
  - {name: shop, host: "*.shop.example.com", path: "/items/**", service: web}
  - {name: eu, host: eu.shop.example.com, service: web, max_body: 1024GiB}
  - {name: stripped, path: "/{tenant}/x/**", service: web, strip_prefix: "/{tenant}/x"}
  - {name: escaped, path: "/users:login", service: web, add_prefix: /auth}
rules: []
`

func TestRouteIsTheMostSpecific(t *testing.T) {
	set := compiled(t, routed)
	for _, test := range []struct{ request, want string }{
		{"GET any /api/pay", "pay /v2/pay"},
		{"GET any /api/pay/", "pay /v2/pay/"},
		{"POST any /api/pay/42", "pay /v2/pay/42"},
		{"post any /api;v=1/pay/42;x", "pay /v2/pay/42;x"},
		{"POST any /;x/api/pay", "pay /v2/pay"},
		{"HEAD any /api/pay/a%2Fb", "pay /v2/pay/a%2Fb"},
		{"DELETE any /api/pay", ""},
		{"GET any /items/7", "item /items/7"},
		{"GET any /items/new", "new /items/new"},
		{"GET a.b.Shop.example.com /items/new", "shop /items/new"},
		{"GET eu.shop.example.com /items/new", "eu /items/new"},
		{"GET shop.example.com /items/new", "new /items/new"},
		{"GET any /t/x", "stripped /"},
		{"GET any /t/x/", "stripped /"},
		{"GET any /t/x/y", "stripped /y"},
		{"GET any /users%3Alogin", "escaped /auth/users%3Alogin"},
		{"GET any /", ""},
		{"GET any /items", ""},
	} {
		word := strings.Fields(test.request)
		got := ""
		if route := set.Route(&rules.Request{Method: word[0], Host: word[1], Path: word[2]}); route != nil {
			got = route.Name + " " + route.Forwarded(word[2])
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.request, got, test.want)
		}
	}
	if set := compiled(t, "rules: []"); set.Route(&rules.Request{Method: "GET", Path: "/"}) != nil {
		t.Error("a file without routes has one")
	}
}

func TestServicesHaveDefaults(t *testing.T) {
	services := compiled(t, routed).Services()
	got := fmt.Sprintf("%+v", *services[0])
	want := "{Name:order Addresses:[{URL:{Scheme:http Opaque: User: Host:10.0.0.1:8080 Path: Fragment: RawQuery: " +
		"RawPath: RawFragment: ForceQuery:false OmitHost:false} Weight:3} {URL:{Scheme:http Opaque: User: " +
		"Host:10.0.0.2:8080 Path: Fragment: RawQuery: RawPath: RawFragment: ForceQuery:false OmitHost:false} Weight:1}] " +
		"LeastRequests:false Host: Connect:5s Header:0s Total:0s Idle:4s Retries:1 RetrySafe:true Failures:5 Eject:10s EjectMax:5m0s MaxBody:0 " +
		"CheckPath: CheckInterval:5s CheckStatus:0 TLS:{CA: ServerName: Cert: Key: Verify:} Concurrency:<nil> reserve:<nil>}"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var bounds []int64
	for _, route := range compiled(t, routed).Routes() {
		bounds = append(bounds, route.MaxBody)
	}
	if fmt.Sprint(bounds) != "[0 0 0 65536 1099511627776 65536 65536]" {
		t.Errorf("bodies are bounded by %d", bounds)
	}
	if services[1].Retries != 0 || services[1].TLS.Verify != "none" {
		t.Errorf("%+v", services[1])
	}
}

// TestRouteAllocatesNothing: it is done for every request.
func TestRouteAllocatesNothing(t *testing.T) {
	set := compiled(t, routed)
	request := &rules.Request{Method: "GET", Host: "eu.shop.example.com", Path: "/items/new"}
	if n := testing.AllocsPerRun(100, func() { set.Route(request) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestAmbiguousMeansThatARequestMeetsBoth compares the check with a search for such a request.
func TestAmbiguousMeansThatARequestMeetsBoth(t *testing.T) {
	segments := []string{"a", "b", "*", ""}
	var patterns, requests []string
	for _, first := range segments {
		patterns = append(patterns, "/"+first)
		for _, second := range segments {
			if first != "" {
				patterns = append(patterns, "/"+first+"/"+second, "/"+first+"/"+second+"/**")
			}
		}
	}
	for _, first := range []string{"a", "b", "c"} {
		requests = append(requests, "/", "/"+first, "/"+first+"/")
		for _, second := range []string{"a", "b", "c"} {
			requests = append(requests, "/"+first+"/"+second, "/"+first+"/"+second+"/", "/"+first+"/"+second+"/d")
		}
	}
	file := func(routes string) string {
		return "services: [{name: s, addresses: http://a}]\nroutes:\n" + routes + "rules: []\n"
	}
	line := func(name, path string) string {
		return fmt.Sprintf("  - {name: %s, path: %q, service: s}\n", name, path)
	}
	meets := make(map[string]map[string]bool)
	for _, pattern := range patterns {
		if strings.Contains(pattern, "//") {
			continue
		}
		set := compiled(t, file(line("one", pattern)))
		meets[pattern] = make(map[string]bool)
		for _, path := range requests {
			meets[pattern][path] = set.Route(&rules.Request{Method: "GET", Path: path}) != nil
		}
	}
	refused := 0
	for x, ofX := range meets {
		for y, ofY := range meets {
			one, errOne := rules.Load("f", []byte(file(line("x", x)+line("y", y))))
			other, errOther := rules.Load("f", []byte(file(line("y", y)+line("x", x))))
			if (errOne == nil) != (errOther == nil) {
				t.Fatalf("%s and %s: %v, in the other order %v", x, y, errOne, errOther)
			}
			both := ""
			for _, path := range requests {
				if ofX[path] && ofY[path] {
					both = path
				}
				if errOne != nil {
					continue
				}
				request := &rules.Request{Method: "GET", Path: path}
				if a, b := one.Route(request), other.Route(request); a != b && a.Name != b.Name {
					t.Errorf("%s and %s: %s is forwarded by their order", x, y, path)
				}
			}
			if errOne != nil {
				if refused++; both == "" {
					t.Errorf("%s and %s are refused, and meet no request both", x, y)
				}
			}
		}
	}
	if refused < len(meets) {
		t.Errorf("only %d pairs are refused", refused)
	}
}
