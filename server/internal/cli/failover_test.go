//go:build unix

package cli_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// byUser has keys in all slots of a Cluster.
const byUser = `
rules:
  - {name: local, match: {path: /local}, key: [query.user], limit: fixed_window 100000/1h}
  - {name: deny, match: {path: /deny}, key: [query.user], limit: fixed_window 100000/1h, on_store_error: deny}
`

const users = 32

// TestMasterDies: the requests of the dead master's keys are answered by the policy of
// their rules, none as an error of the server; when a replica has taken over, Redis decides
// about every key again.
func TestMasterDies(t *testing.T) {
	t.Parallel()
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, 3, 1)
		masterDies(t, cluster.URL(), cluster.Nodes[0])
	})
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		set := redistest.StartSentinel(t)
		masterDies(t, set.URL(), set.Servers[0])
	})
}

func masterDies(t *testing.T, store string, master *redistest.Server) {
	p := call{}.serve(t, "--config", write(t, t.TempDir(), "rules.yaml", byUser), "--store", store,
		"--set", "server.store.timeout=1s", "--gateway", "127.0.0.1:0", "--upstream", "demo")
	gateway := p.at("gateway")
	everybody := func(path string) bool {
		for user := range users {
			if status(t, fmt.Sprintf("%s%s?user=%d", gateway, path, user)) != http.StatusOK {
				return false
			}
		}
		return true
	}
	redistest.Await(t, "all keys to be decided", func() bool { return everybody("/deny") })
	stop := loadUsers(t, gateway)
	master.Kill()
	redistest.Await(t, "deny to deny", func() bool { return !everybody("/deny") })
	if !everybody("/local") {
		t.Error("a rule that counts locally meanwhile refused somebody")
	}
	redistest.Await(t, "all keys to be decided again", func() bool { return everybody("/deny") })
	stop()
	p.end()
}

// loadUsers asks all the time, until the function returned is called: it fails the test
// where an answer is none that a rule's policy gives.
func loadUsers(t *testing.T, gateway string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var asked atomic.Int64
	for _, one := range []struct {
		path    string
		allowed map[int]bool
	}{
		{"/local", map[int]bool{http.StatusOK: true}},
		{"/deny", map[int]bool{http.StatusOK: true, http.StatusServiceUnavailable: true}},
	} {
		for range 2 {
			load.Go(func() {
				for ctx.Err() == nil {
					user := asked.Add(1) % users
					response, err := client.Get(fmt.Sprintf("%s%s?user=%d", gateway, one.path, user))
					if err != nil {
						t.Error(err)
						continue
					}
					response.Body.Close()
					if !one.allowed[response.StatusCode] {
						t.Errorf("%s: %s", one.path, response.Status)
					}
				}
			})
		}
	}
	return func() {
		cancel()
		load.Wait()
	}
}
