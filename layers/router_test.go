package layers_test

import (
	"context"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
)

// passed is a shared store that notes the types of this package on the stack of its first decision.
type passed struct {
	*memstore.Store
	once  sync.Once
	types []string
}

func (p *passed) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	p.once.Do(func() { p.types = typesOnStack() })
	return p.Store.Decide(ctx, claims, times, d)
}

var receiver = regexp.MustCompile(`/layers\.\(\*(\w+)\)`)

// typesOnStack returns the receivers of this package's methods, the outermost first, without repetitions.
func typesOnStack() (types []string) {
	list := make([]uintptr, 64)
	frames := runtime.CallersFrames(list[:runtime.Callers(1, list)])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if found := receiver.FindStringSubmatch(frame.Function); found != nil {
			types = append(types, found[1])
		}
	}
	slices.Reverse(types)
	return slices.Compact(types)
}

// TestACallPassesTheLayersOfItsLimits: a layer that no limit of a call needs costs it no time.
func TestACallPassesTheLayersOfItsLimits(t *testing.T) {
	const exact = " refusalCache coalescer breaker"
	for _, test := range []struct {
		name  string
		terms layers.Terms
		want  string
	}{
		{"plain", layers.Terms{}, "router" + exact},
		{"local", layers.Terms{Local: true}, "router" + exact},
		{"lease", layers.Terms{LeaseShare: 0.1}, "router leaser" + exact},
		{"ceiling", layers.Terms{Ceiling: 2}, "router ceiling leaser" + exact},
	} {
		shared := &passed{Store: memstore.New()}
		stack, err := layers.New(shared, layers.Options{Timeout: time.Minute, Local: memstore.New(),
			Bounds: memstore.New(memstore.WithoutOverflow()), Terms: func(*weir.Limit) layers.Terms { return test.terms }})
		if err != nil {
			t.Fatal(err)
		}
		limit := weir.MustLimit(test.name, weir.FixedWindow{Limit: 9, Window: time.Hour})
		decisions := make([]weir.Decision, 1)
		if _, err := stack.Store.Decide(t.Context(), []weir.Claim{{Key: "k", Limit: limit, Cost: 1}}, 1, decisions); err != nil {
			t.Fatal(err)
		}
		if err := stack.Store.Close(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(shared.types, " "); got != test.want {
			t.Errorf("%s: the call passes %s, want %s", test.name, got, test.want)
		}
	}
}
