package rules_test

import (
	"testing"
	"time"
)

func TestSchedules(t *testing.T) {
	for _, test := range []struct{ schedule, at, want string }{
		{"{hours: 09:00-18:00}", "2026-03-02T08:59:59.999Z", "no"},
		{"{hours: 09:00-18:00}", "2026-03-02T09:00:00Z", "yes"},
		{"{hours: 09:00-18:00}", "2026-03-02T17:59:59.999Z", "yes"},
		{"{hours: 09:00-18:00}", "2026-03-02T18:00:00Z", "no"},
		{"{hours: 18:00-24:00}", "2026-03-02T23:59:59Z", "yes"},
		{"{hours: 18:00-24:00}", "2026-03-03T00:00:00Z", "no"},
		{"{hours: 18:00-00:00}", "2026-03-02T23:59:59Z", "yes"},
		{"{hours: 18:00-00:00}", "2026-03-03T00:00:00Z", "no"},
		{"{hours: 00:00-24:00}", "2026-03-03T12:00:00Z", "yes"},
		{"{hours: 09:00 - 18:00}", "2026-03-02T09:00:00Z", "yes"},

		{"{days: mon-fri}", "2026-03-01T12:00:00Z", "no"}, // a Sunday
		{"{days: mon-fri}", "2026-03-02T00:00:00Z", "yes"},
		{"{days: [mon-fri, sun]}", "2026-03-01T12:00:00Z", "yes"},
		{"{days: [mon-fri, sun]}", "2026-03-07T12:00:00Z", "no"},
		{"{days: sat-mon}", "2026-03-02T12:00:00Z", "yes"},
		{"{days: sat-mon}", "2026-03-03T12:00:00Z", "no"},

		{"{days: fri, hours: 22:00-06:00}", "2026-03-06T23:00:00Z", "yes"},
		{"{days: fri, hours: 22:00-06:00}", "2026-03-07T05:59:00Z", "yes"}, // Saturday: it began on Friday
		{"{days: fri, hours: 22:00-06:00}", "2026-03-07T06:00:00Z", "no"},
		{"{days: fri, hours: 22:00-06:00}", "2026-03-07T23:00:00Z", "no"},
		{"{days: fri, hours: 22:00-06:00}", "2026-03-06T05:00:00Z", "no"}, // it would have begun on Thursday
		{"{days: sat, hours: 22:00-06:00}", "2026-03-08T05:00:00Z", "yes"},

		{"{hours: 09:00-18:00, zone: Asia/Shanghai}", "2026-03-02T01:00:00Z", "yes"},
		{"{hours: 09:00-18:00, zone: Asia/Shanghai}", "2026-03-02T10:00:00Z", "no"},
		{"{days: mon, zone: Asia/Shanghai}", "2026-03-01T16:00:00Z", "yes"},
		// Berlin's clock goes from 2:00 to 3:00 on 29 March 2026, and from 3:00 to 2:00 on 25 October.
		{"{hours: 09:00-18:00, zone: Europe/Berlin}", "2026-03-28T08:00:00Z", "yes"},
		{"{hours: 09:00-18:00, zone: Europe/Berlin}", "2026-03-29T07:00:00Z", "yes"},
		{"{hours: 09:00-18:00, zone: Europe/Berlin}", "2026-03-29T16:00:00Z", "no"},
		{"{hours: 01:00-02:30, zone: Europe/Berlin}", "2026-03-29T00:59:00Z", "yes"},
		{"{hours: 01:00-02:30, zone: Europe/Berlin}", "2026-03-29T01:00:00Z", "no"}, // it is 3:00
		{"{hours: 02:00-03:00, zone: Europe/Berlin}", "2026-10-25T00:30:00Z", "yes"},
		{"{hours: 02:00-03:00, zone: Europe/Berlin}", "2026-10-25T01:30:00Z", "yes"}, // 2:30 again

		{"[{days: sat}, {days: mon, hours: 09:00-10:00}]", "2026-03-07T03:00:00Z", "yes"},
		{"[{days: sat}, {days: mon, hours: 09:00-10:00}]", "2026-03-02T09:30:00Z", "yes"},
		{"[{days: sat}, {days: mon, hours: 09:00-10:00}]", "2026-03-02T10:30:00Z", "no"},
		{`{hours: "09:00-18:00", days: ["mon"]}`, "2026-03-02T10:30:00Z", "yes"},
	} {
		rule := compiled(t, "rules: [{name: a, limit: 1/1m, schedule: "+test.schedule+"}]").Rules()[0]
		now, err := time.Parse(time.RFC3339, test.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := rule.Active(now); !rule.Scheduled() || got != (test.want == "yes") {
			t.Errorf("%s at %s: %v", test.schedule, test.at, got)
		}
		if n := testing.AllocsPerRun(10, func() { rule.Active(now) }); n != 0 {
			t.Errorf("%s: %v allocations", test.schedule, n)
		}
	}
	always := compiled(t, "rules: [{name: a, limit: 1/1m}]").Rules()[0]
	if always.Scheduled() || !always.Active(time.Time{}) {
		t.Error("a rule without a schedule applies always")
	}
}
