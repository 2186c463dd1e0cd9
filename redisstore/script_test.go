package redisstore

import (
	"sync"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
)

// Many callers that need a script at once wait for one that makes it, and none makes it again.
func TestAScriptIsMadeOnce(t *testing.T) {
	s, err := newScripts(false)
	if err != nil {
		t.Fatal(err)
	}
	of := []*kind{kindOf(weir.MustLimit("hourly", weir.PerHour(20)))}
	scripts := make([]*redisconn.Script, 64)
	var ready, callers sync.WaitGroup
	ready.Add(len(scripts))
	s.mu.Lock() // all come to the lock before the script is there
	for i := range scripts {
		callers.Go(func() {
			ready.Done()
			scripts[i] = s.get(opTake, of, false)
		})
	}
	ready.Wait()
	s.mu.Unlock()
	callers.Wait()
	for _, script := range scripts {
		if script != scripts[0] {
			t.Fatal("a script was made more than once")
		}
	}
}
