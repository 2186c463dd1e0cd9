package resp

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// A gone client has sent its text and accepts no answer.
type gone struct {
	net.Conn
	text string
}

func (g *gone) Read(b []byte) (int, error)         { return copy(b, g.text), nil }
func (g *gone) Write([]byte) (int, error)          { return 0, errors.New("broken pipe") }
func (g *gone) SetReadDeadline(time.Time) error    { return nil }
func (g *gone) SetWriteDeadline(t time.Time) error { return nil }

// TestCommandsAfterFailedWriteAreNotRun: a client that has gone is not charged for the rest of its
// pipeline.
func TestCommandsAfterFailedWriteAreNotRun(t *testing.T) {
	set, err := rules.Load("weir.yaml", []byte("rules: []"))
	if err != nil {
		t.Fatal(err)
	}
	store, decided := memstore.New(), 0
	g, err := gate.New(store, set, gate.WithLocal(store), gate.WithObserver(func(*gate.Verdict) { decided++ }))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(g, store)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const throttle = "CL.THROTTLE k 9 1 60\r\n"
	c := newConn(s, &gone{text: throttle + strings.Repeat("COMMAND DOCS\r\n", flushAt/1000) + throttle})
	if !c.read() || c.answer() {
		t.Error("the connection goes on")
	}
	if decided != 1 {
		t.Errorf("%d commands were decided, want the one before the failed write", decided)
	}
}
