package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/server/internal/gateway"
)

// A walked is a connection that notes by which functions of weir a script is reached, the outermost first.
type walked struct {
	redisconn.Conn
	packages, stores []string
}

// walkedBy finds the package and the type in the name of a method.
var walkedBy = regexp.MustCompile(`^github\.com/weirproject/weir/([\w/]+)\.(?:\(\*?(\w+)\))?`)

func (w *walked) Run(context.Context, *redisconn.Script, []string, []string, []redisconn.Value) ([]redisconn.Value, error) {
	list := make([]uintptr, 128)
	frames := runtime.CallersFrames(list[:runtime.Callers(2, list)])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		found := walkedBy.FindStringSubmatch(frame.Function)
		if found == nil || strings.HasSuffix(found[1], "_test") {
			continue
		}
		w.packages = append(w.packages, found[1])
		if slices.Contains([]string{"layers", "observe", "redisstore"}, found[1]) && found[2] != "" {
			w.stores = append(w.stores, found[2])
		}
	}
	for _, names := range []*[]string{&w.packages, &w.stores} {
		slices.Reverse(*names)
		*names = slices.Compact(*names)
	}
	return nil, weir.ErrUnavailable
}

func (*walked) Cluster() bool { return false }

// TestWalkToRedis: ARCHITECTURE.md has this walk, of a rule that needs no further layer.
func TestWalkToRedis(t *testing.T) {
	conn := new(walked)
	shared, err := redisstore.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stack, err := layers.New(servermetrics.New("test").Store(shared), layers.Options{Timeout: time.Minute,
		Local: memstore.New(), Bounds: memstore.New(memstore.WithoutOverflow())})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(stack.Store, load(t, "rules: [{name: ip, key: [client.ip], limit: 10/1m}]"), gate.WithLocal(stack.Local))
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.ByRules(g, &httplimit.RuleOptions{Read: gateway.Read, Service: gateway.ServiceOf})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := gateway.New(&url.URL{Scheme: "http", Host: "127.0.0.1:1"}, limit, gateway.Config{Transport: transport{}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/items", nil))
	packages := "server/internal/gateway httplimit gate layers observe redisstore"
	if got := strings.Join(conn.packages, " "); w.Code != http.StatusNoContent || got != packages {
		t.Errorf("%d: a request walks %s, want %s", w.Code, got, packages)
	}
	stores := "router refusalCache coalescer breaker observed Store"
	if got := strings.Join(conn.stores, " "); got != stores {
		t.Errorf("a decision walks the stores %s, want %s", got, stores)
	}
}
