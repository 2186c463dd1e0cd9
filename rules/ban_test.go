package rules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirproject/weir/rules"
)

func TestBans(t *testing.T) {
	const text = `
rules:
  - name: login
    key: [client.ip]
    limit: 5/1m
    ban: {after: 5 refusals within 1m, for: 10m, then: [1h, 1d], forget: 14d}
  - name: sms
    key: [user]
    limit: 5/1m
    ban: {after: 1 refusal within 1h, for: 5s}
  - {name: none, limit: 5/1m}
`
	file, err := rules.Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%+v", file.Rules[0].Ban); got != "{After:5 refusals within 1m For:10m Then:[1h 1d] Forget:14d}" {
		t.Errorf("the spec is %s", got)
	}
	list := compiled(t, text).Rules()
	if list[2].Bans() != nil {
		t.Error("a rule without a ban has one")
	}
	for i, want := range []string{
		"[10m0s 1h0m0s 24h0m0s] login.ban 1/1us, login.refusals sliding_log 5/1m, login.turn fixed_window 1/10s, login.bans 1/2w burst 3",
		"[5s] sms.ban 1/1us, sms.refusals sliding_log 1/1h, sms.turn fixed_window 1/5s, sms.bans 1/1w",
	} {
		b := list[i].Bans()
		got := fmt.Sprintf("%v %s %v, %s %v, %s %v, %s %v", b.Lengths, b.Hold.Name(), b.Hold, b.Refusals.Name(), b.Refusals, b.Turn.Name(), b.Turn, b.Past.Name(), b.Past)
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if list[0].Bans().Lengths[2] != 24*time.Hour {
		t.Error("a day has no 24 hours")
	}
}
