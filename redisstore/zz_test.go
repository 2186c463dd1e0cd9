package redisstore
import ("testing";"time";"context";"fmt";"sync";"os";"runtime"
"github.com/weirproject/weir/internal/redistest")
func TestZZ(t *testing.T) {
	const timeout = 20 * time.Millisecond
	server := redistest.Start(t)
	c := open(t, server.URL(), WithTimeout(timeout))
	mustRun(t, c, "k")
	server.Stop()
	bound := newBound(timeout)
	var mu sync.Mutex
	begin := time.Now()
	lates := map[string]int{}
	var once sync.Once
	dump := func() { once.Do(func() { buf := make([]byte, 1<<22); n := runtime.Stack(buf, true); os.WriteFile("/tmp/rx/stack.txt", buf[:n], 0o644) }) }
	crowd(300, time.Second, func() {
		start := time.Now()
		w := time.AfterFunc(70*time.Millisecond, dump)
		defer w.Stop()
		ctx, stop := bound.limit(context.Background())
		defer stop()
		_, err := c.Run(ctx, charge(), []string{"k"}, []string{"1"}, nil)
		if d := time.Since(start); d > 60*time.Millisecond {
			mu.Lock(); lates[fmt.Sprint(start.Sub(begin).Round(10*time.Millisecond), d.Round(10*time.Millisecond), err)]++; mu.Unlock()
		}
	})
	fmt.Println(lates)
}
