package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/server/internal/geosource/geotest"
)

const geoRules = `
rules:
  - {name: abroad, match: {not: {country: CN}}, key: [client.country], limit: fixed_window 1/1h}
`

const asnRules = "rules: [{name: network, match: {asn: 64512}, key: [client.asn], limit: fixed_window 1/1h}]\n"

// TestGeoFileIsReloaded: a good file counts, a bad one is reported and changes nothing.
func TestGeoFileIsReloaded(t *testing.T) {
	t.Parallel()
	rules := write(t, t.TempDir(), "rules.yaml", geoRules)
	country := func(code string) geotest.Records { return geotest.Records{"127.0.0.0/8": geotest.Country(code)} }
	geo := geotest.File(t, country("DE"))
	p := call{}.serve(t, "--config", rules, "--set", "server.geo="+geo, "--gateway", "127.0.0.1:0", "--upstream", "demo")
	status := func(want int) {
		t.Helper()
		if got, _, body := get(t, p.at("gateway")+"/"); got != want {
			t.Errorf("%d, want %d: %s", got, want, body)
		}
	}
	reload := func(want int, wants ...string) {
		t.Helper()
		got, _, body := post(t, p.at("http")+"/-/reload", "")
		_, _, ready := get(t, p.at("http")+"/readyz")
		_, _, metrics := get(t, p.at("http")+"/metrics")
		all := body + ready + metrics
		for _, text := range wants {
			if got != want || !strings.Contains(all, text) {
				t.Errorf("reload answers %d, want %d and %q: %s %s", got, want, text, body, ready)
			}
		}
	}
	status(200)
	status(429)
	write(t, filepath.Dir(geo), filepath.Base(geo), "junk")
	reload(422, "no valid database", "geo: ", `weir_source_good{source="geo"} 0`)
	status(429)
	write(t, filepath.Dir(geo), filepath.Base(geo), string(geotest.Make(t, country("CN"))))
	reload(200, `weir_source_good{source="geo"} 1`, `"geo"`)
	status(200)
	status(200)
	p.end()
}

// TestCountryHeaderOfTrustedProxiesAlone: CF-IPCountry, by the gateway and forward-auth.
func TestCountryHeaderOfTrustedProxiesAlone(t *testing.T) {
	t.Parallel()
	rules := write(t, t.TempDir(), "rules.yaml", geoRules)
	geo := geotest.File(t, geotest.Records{"127.0.0.0/8": geotest.Country("CN")})
	for _, test := range []struct {
		trusted, said string
		want          int
	}{{"127.0.0.1", "DE", 429}, {"127.0.0.1", "XX", 200}, {"127.0.0.1", "de", 200}, {"192.0.2.1", "DE", 200}} {
		p := call{}.serve(t, "--config", rules, "--set", "server.geo="+geo, "--set", "server.country_header=CF-IPCountry", "--trusted-proxies", test.trusted,
			"--gateway", "127.0.0.1:0", "--upstream", "demo")
		for _, want := range []int{200, test.want} {
			if got, _, _ := get(t, p.at("gateway")+"/", "CF-IPCountry", test.said); got != want {
				t.Errorf("%+v: %d, want %d", test, got, want)
			}
		}
		p.end()
	}
}

// TestRulesThatNeedGeoAreNotAcceptedWithoutIt: at the start, and by a reload.
func TestRulesThatNeedGeoAreNotAcceptedWithoutIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	country, asn := write(t, dir, "country.yaml", geoRules), write(t, dir, "asn.yaml", asnRules)
	geo := geotest.File(t, geotest.Records{"127.0.0.0/8": geotest.Country("DE")})
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--config", country}, "rules need the client's country (abroad), and nothing knows it: give a file with countries in server.geo"},
		{[]string{"--config", asn, "--set", "server.geo=" + geo}, "rules need the client's autonomous system (network)"},
		{[]string{"--config", country, "--set", "server.country_header=CF-IPCountry"}, "no proxy is trusted"},
		{[]string{"--config", country, "--set", "server.geo=" + country}, "no valid database"},
		{[]string{"--config", country, "--set", "server.geo=" + filepath.Join(dir, "none")}, "no such file"},
	} {
		if r := (call{}).run(t, append([]string{"serve", "--http", "127.0.0.1:0"}, test.args...)...); r.code == 0 || !strings.Contains(r.err, test.want) {
			t.Errorf("%v: want %q:\n%v", test.args, test.want, r)
		}
	}
	if r := (call{}).run(t, "check", country); r.code != 0 || !strings.Contains(r.out, "note: "+country+": rules need the client's country (abroad)") {
		t.Error(r)
	}
	changing := write(t, dir, "changing.yaml", "rules: []\n")
	p := call{}.serve(t, "--config", changing, "--set", "server.allow_empty=true")
	write(t, dir, "changing.yaml", geoRules)
	if got, _, body := post(t, p.at("http")+"/-/reload", ""); got != 422 || !strings.Contains(body, "rules need the client's country") {
		t.Errorf("reload: %d %s", got, body)
	}
	p.end()
}

func TestExplainShowsCountryAndASN(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules := write(t, dir, "rules.yaml", geoRules+"  - {name: network, match: {asn: 64512, path: /}, key: [client.asn], limit: 5/1h}\n"+
		"  - {name: other, match: {asn: 7, country: FR, path: /}, limit: 5/1h}\n")
	geo := geotest.File(t, geotest.Records{"198.51.100.0/24": geotest.Country("DE")})
	asn := geotest.File(t, geotest.Records{"198.51.100.0/24": geotest.ASN(64512)})
	r := call{}.run(t, "explain", "--config", rules, "--set", "server.geo="+geo+","+asn, "--client", "198.51.100.7")
	for _, want := range []string{"country DE\n", "asn     64512\n", "client.country=2:DE", "client.asn=5:64512", "country is DE, not FR", "autonomous system is 64512, not 7"} {
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("want %q:\n%v", want, r)
		}
	}
	if r := (call{}).run(t, "explain", "--config", rules); r.code != 0 || !strings.Contains(r.out, "country of the client is not known") {
		t.Error(r)
	}
}
