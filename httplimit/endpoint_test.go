package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/memstore"
)

// TestJunkPathsTakeNoPlaces: a scan of paths that do not exist leaves each later path its own count.
func TestJunkPathsTakeNoPlaces(t *testing.T) {
	g := gateOf(t, memstore.New(), "\n  - {name: each, key: [endpoint], limit: fixed_window 3/1h}\n")
	m, err := httplimit.ByRules(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/pay", func(http.ResponseWriter, *http.Request) {})
	limited := m(mux)
	statusOf := func(path string) int {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code
	}
	for i := range 2 * bounds.Endpoints {
		statusOf(fmt.Sprint("/junk", i))
	}
	for _, path := range []string{"/x1", "/x2", "/x3", "/pay", "/pay", "/pay"} {
		if status := statusOf(path); status == http.StatusTooManyRequests {
			t.Errorf("%s is refused", path)
		}
	}
	if status := statusOf("/pay"); status != http.StatusTooManyRequests {
		t.Errorf("the limit of a path is not kept: %d", status)
	}
	if n := g.Rules().Endpoints().Len(time.Now()); n != 1 {
		t.Errorf("%d places are taken, not that of /pay alone", n)
	}
}
