//go:build !race

// The race detector makes sync.Pool forget at random, so these counts hold without it.

package resp

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// An endless connection repeats the same input, and accepts all answers.
type endless struct {
	net.Conn
	text string
	took int
}

func (e *endless) Read(b []byte) (int, error)         { return copy(b, e.text), nil }
func (e *endless) Write(b []byte) (int, error)        { e.took += len(b); return len(b), nil }
func (e *endless) SetReadDeadline(time.Time) error    { return nil }
func (e *endless) SetWriteDeadline(t time.Time) error { return nil }

func ready(t testing.TB, text string) (*conn, *endless) {
	t.Helper()
	set, err := rules.Load("weir.yaml", []byte("rules: [{name: per-user, key: [user, header.X-Plan], limit: 1000000/1s}]"))
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New()
	g, err := gate.New(store, set, gate.WithLocal(store), gate.WithObserver(func(*gate.Verdict) {}))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(g, store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	wire := &endless{text: text, Conn: nothing{}}
	return newConn(s, wire), wire
}

type nothing struct{ net.Conn }

func (nothing) Close() error { return nil }

var steady = map[string]string{
	"CL.THROTTLE granted":  "*5\r\n$11\r\nCL.THROTTLE\r\n$7\r\nuser:42\r\n$7\r\n1000000\r\n$7\r\n1000000\r\n$1\r\n1\r\n",
	"CL.THROTTLE refused":  "*6\r\n$11\r\nCL.THROTTLE\r\n$7\r\nuser:43\r\n$1\r\n1\r\n$1\r\n1\r\n$5\r\n10000\r\n$1\r\n1\r\n",
	"WEIR.DECIDE LIMIT":    "*5\r\n$11\r\nWEIR.DECIDE\r\n$5\r\nLIMIT\r\n$3\r\napi\r\n$7\r\n1000/1s\r\n$7\r\nuser:42\r\n",
	"WEIR.DECIDE RULES":    "*6\r\n$11\r\nWEIR.DECIDE\r\n$5\r\nRULES\r\n$4\r\nuser\r\n$5\r\nalice\r\n$13\r\nheader.X-Plan\r\n$4\r\nfree\r\n",
	"PING and nothing new": "*1\r\n$4\r\nPING\r\n",
}

// TestSteadyStateAllocatesNothing: a decision from the bytes read to the bytes written.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	for name, command := range steady {
		c, wire := ready(t, strings.Repeat(command, 16))
		if !c.read() || !c.answer() || wire.took < 16*5 {
			t.Fatalf("%s: it does not work", name)
		}
		if got := testing.AllocsPerRun(200, func() { _ = c.read() && c.answer() }); got != 0 {
			t.Errorf("%s: %v allocations for 16 of them", name, got)
		}
	}
}
