package endpoints

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/bounds"
)

// begin is the time of a test's first request.
var begin = time.UnixMicro(1_000_000_000)

// filled returns a table whose places all have a path without a response.
func filled() *Table {
	t := new(Table)
	for i := range bounds.Endpoints {
		t.Request(fmt.Sprint("/junk/", i), begin)
	}
	return t
}

func TestPlacesEnd(t *testing.T) {
	for _, c := range []struct {
		what     string
		status   int           // of the response to all junk; 0: none was seen
		idle     time.Duration // then without a request
		own, old string        // by what a new path and a junk path are counted then
	}{
		{"404", 404, 0, "/pay", "/junk/0"},
		{"not seen", 0, 0, Other, "/junk/0"},
		{"not seen", 0, keptUnknown - time.Second, Other, "/junk/0"},
		{"not seen", 0, keptUnknown, "/pay", "/junk/0"},
		{"refused by the service", 401, keptUnknown, "/pay", "/junk/0"},
		{"failed", 502, keptUnknown, "/pay", "/junk/0"},
		{"answered", 200, keptUnknown, Other, "/junk/0"},
		{"redirected", 308, keptKnown - time.Second, Other, "/junk/0"},
		{"answered", 200, keptKnown, "/pay", "/junk/0"},
	} {
		table := filled()
		for i := range bounds.Endpoints {
			table.Response(fmt.Sprint("/junk/", i), c.status, begin)
		}
		at := begin.Add(c.idle)
		table.Expire(at)
		if own, old := table.Of("/pay"), table.Of("/junk/0"); own != c.own || old != c.old {
			t.Errorf("%s, %v later: %s and %s, want %s and %s", c.what, c.idle, own, old, c.own, c.old)
		}
		if full := table.Len(at) == bounds.Endpoints; full != (c.own == Other) {
			t.Errorf("%s, %v later: %d places in use", c.what, c.idle, table.Len(at))
		}
	}
}

// TestKnownPathsStay: neither an error, nor a 404 for one of its things, nor junk displaces a path that exists.
func TestKnownPathsStay(t *testing.T) {
	table := filled()
	for _, name := range []string{"/pay", "/cart"} { // the requests passed as "(other)"
		table.Request(name, begin)
		table.Response(name, 200, begin)
	}
	table.Response("/pay", 404, begin)
	table.Response("/pay", 500, begin)
	for i := range 3 * bounds.Endpoints {
		junk := fmt.Sprint("/more/", i)
		table.Request(junk, begin)
		table.Response(junk, 404, begin)
	}
	if pay, cart := table.Of("/pay"), table.Of("/cart"); pay != "/pay" || cart != "/cart" {
		t.Errorf("they are counted by %s and %s", pay, cart)
	}
	if n := table.Len(begin); n != bounds.Endpoints {
		t.Errorf("%d places in use", n)
	}
	after := new(Table) // rules were edited
	after.Adopt(table)
	if got := after.Of("/later"); got != Other {
		t.Errorf("after an edit another path is counted by %s", got)
	}
	if got := after.Of("/pay"); got != "/pay" {
		t.Errorf("after an edit it is counted by %s", got)
	}
}
