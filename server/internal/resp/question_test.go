package resp

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
)

// FuzzQuestion: a question of any words is decided, or is a mistake that the answer names. A mistake never reaches the
// store, where it would look like an outage.
func FuzzQuestion(f *testing.F) {
	for _, text := range []string{
		"LIMIT a 5/1m k COST 2 FLOOR 3 LIMIT b concurrency_9_ttl_1m k TIMES 1 LEASE x",
		"LIMIT a fair_fixed_window_9/1h_above_0 k MEMBER m WEIGHT 3 FLOOR 1 ID i FOR 1m",
		"LIMIT a fair_concurrency_9_ttl_1m k MEMBER  WEIGHT 1000",
		"RULES COST 3 method GET path /a client.ip ::1 header.X-A b query.c d cookie.e f descriptor.g h",
		"LIMIT a 1/1s k FLOOR -1 WEIGHT 0", "LIMIT a 1/1s k FLOOR 4503599627370497", "LIMIT a 1/1s k MEMBER", "FLOOR 1",
	} {
		f.Add(text, uint8(anything))
		f.Add(text, uint8(claimsOfOne))
	}
	store := memstore.New()
	g := gatetest.New(f, store, "rules: [{name: a, key: [user], limit: 9/1h}]")
	server, err := New(g, store)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(server.Close)
	c := newConn(server, nil)
	f.Fuzz(func(t *testing.T, text string, may uint8) {
		var words [][]byte
		for word := range strings.SplitSeq(text, " ") {
			words = append(words, []byte(strings.ReplaceAll(word, "_", " ")))
		}
		d := c.slot()
		if d.q.read(c, words, permission(may)%(anything+1)) != nil {
			return
		}
		d.times = d.q.times
		q := d.question()
		var input *weir.InputError
		err := g.Decide(t.Context(), q.Request, q.Ask, q.Verdict)
		if err != nil && !errors.As(err, &input) || err == nil && d.verdict.Outcome == gate.Failed {
			t.Errorf("%q: %v, %s", text, err, d.verdict.Outcome)
		}
	})
}
