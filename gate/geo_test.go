package gate_test

import (
	"net/netip"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// A fakeGeo knows one network, and counts its calls.
type fakeGeo struct{ countries, numbers int }

func (g *fakeGeo) Country(client netip.Addr) string {
	g.countries++
	if netip.MustParsePrefix("198.51.100.0/24").Contains(client) {
		return "CN"
	}
	return ""
}

func (g *fakeGeo) ASN(client netip.Addr) uint32 {
	g.numbers++
	if netip.MustParsePrefix("198.51.100.0/24").Contains(client) {
		return 64512
	}
	return 0
}

const located = `
rules:
  - {name: cn, match: {country: CN}, key: [client.asn], limit: fixed_window 1/1h}
  - {name: rest, match: {not: {country: CN}}, key: [client.asn], on_missing: skip, limit: fixed_window 1/1h}
`

func decided(t *testing.T, g *gate.Gate, r *rules.Request) (v gate.Verdict) {
	t.Helper()
	if err := g.Decide(t.Context(), r, gate.Once, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCountryIsLookedUp(t *testing.T) {
	geo := new(fakeGeo)
	g := open(t, memstore.New(), located, gate.WithGeo(geo))
	for i, test := range []struct {
		client string
		want   gate.Outcome
	}{{"198.51.100.7", gate.Passed}, {"::ffff:198.51.100.8", gate.Refused}, {"192.0.2.1", gate.Passed}, {"192.0.2.1", gate.Passed}} {
		r := from(test.client)
		v := decided(t, g, r)
		country, asn := v.Located()
		if v.Outcome != test.want || (country == "CN") != (i < 2) || (asn == 64512) != (i < 2) {
			t.Errorf("%s: %v, %q, %d", test.client, v.Outcome, country, asn)
		}
		if r.Country != "" || r.ASN != 0 {
			t.Errorf("%s: the caller's request was changed", test.client)
		}
	}
	if geo.countries != 4 || geo.numbers != 4 {
		t.Errorf("asked for %d countries and %d numbers", geo.countries, geo.numbers)
	}
}

// TestGeoIsAskedOnlyForWhatRulesNeed: neither for what the front end knows, nor without an address.
func TestGeoIsAskedOnlyForWhatRulesNeed(t *testing.T) {
	for _, test := range []struct {
		rules              string
		r                  *rules.Request
		countries, numbers int
	}{
		{"rules: [{name: ip, key: [client.ip], limit: 1/1h}]", from("198.51.100.7"), 0, 0},
		{"rules: [{name: off, enabled: false, key: [client.asn], limit: 1/1h}]", from("198.51.100.7"), 0, 0},
		{"rules: [{name: a, key: [client.asn], limit: 1/1h}]", from("198.51.100.7"), 0, 1},
		{"rules: [{name: a, match: {country: CN}, limit: 1/1h}]", from("198.51.100.7"), 1, 0},
		{"{deny: {client.country: KP}, rules: []}", from("198.51.100.7"), 1, 0},
		{located, &rules.Request{Client: netip.MustParseAddr("198.51.100.7"), Country: "DE", ASN: 7}, 0, 0},
		{located, &rules.Request{}, 0, 0},
	} {
		geo := new(fakeGeo)
		decided(t, open(t, memstore.New(), test.rules, gate.WithGeo(geo)), test.r)
		if geo.countries != test.countries || geo.numbers != test.numbers {
			t.Errorf("%s: asked for %d countries and %d numbers", test.rules, geo.countries, geo.numbers)
		}
	}
}

func TestStatedCountryPrecedesTheFile(t *testing.T) {
	g := open(t, memstore.New(), located, gate.WithGeo(new(fakeGeo)))
	r := from("198.51.100.7")
	r.Country = "DE"
	v := decided(t, g, r)
	if country, asn := v.Located(); v.Rule.Name() != "rest" || country != "DE" || asn != 64512 {
		t.Errorf("%s %s %d", v.Rule.Name(), country, asn)
	}
}

func TestSeveralRequestsAreLocatedApart(t *testing.T) {
	g := open(t, memstore.New(), located, gate.WithGeo(new(fakeGeo)))
	questions := make([]gate.Question, 2)
	for i, client := range []string{"198.51.100.7", "192.0.2.1"} {
		questions[i] = gate.Question{Request: from(client), Ask: gate.Once, Verdict: new(gate.Verdict)}
	}
	if err := g.DecideTogether(t.Context(), questions); err != nil {
		t.Fatal(err)
	}
	g.DecideBatch(t.Context(), questions)
	if a, b := questions[0].Verdict, questions[1].Verdict; a.Outcome != gate.Refused || b.Reason != gate.NoRule && b.Outcome != gate.Passed {
		t.Errorf("%v, %v", a.Outcome, b.Outcome)
	}
}

// TestExceptionOfALocatedKeyIsNamed: a verdict explains itself by the request as it was completed.
func TestExceptionOfALocatedKeyIsNamed(t *testing.T) {
	set := compiled(t, located)
	file, err := rules.Parse("rules.yaml", []byte(located))
	if err != nil {
		t.Fatal(err)
	}
	file.Exceptions = []rules.Exception{{ID: "x", Rule: "cn", Kind: rules.Blocked, Component: "client.asn", Values: []string{"64512"}}}
	if err := set.Except(file); err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(memstore.New(), set, gate.WithLocal(memstore.New()), gate.WithGeo(new(fakeGeo)))
	if err != nil {
		t.Fatal(err)
	}
	r := from("198.51.100.7")
	v := decided(t, g, r)
	if list := v.Exceptions(r); v.Outcome != gate.Denied || len(list) != 1 || list[0].ID != "x" {
		t.Errorf("%v, %v", v.Outcome, list)
	}
}
