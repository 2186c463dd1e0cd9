package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
)

func openUpdates(t testing.TB, url string, opts ...redisstore.Option) *redisstore.Updates {
	t.Helper()
	news, err := redisstore.NewUpdates(url, append(opts, redisstore.WithTimeout(time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { news.Close() })
	return news
}

// An ear listens, again and again, and notes what it hears.
type ear struct {
	mu     sync.Mutex
	heard  []string
	missed int
	errs   []error
}

func listen(t testing.TB, news *redisstore.Updates) *ear {
	t.Helper()
	e := new(ear)
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			err := news.Subscribe(ctx, e.hear, e.miss)
			e.mu.Lock()
			e.errs = append(e.errs, err)
			e.mu.Unlock()
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { stop(); done.Wait() })
	redistest.Await(t, "the subscription", func() bool { return e.times() > 0 })
	return e
}

func (e *ear) hear(message []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, string(message))
}

func (e *ear) miss() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.missed++
}

func (e *ear) times() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.missed
}

func (e *ear) failures() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.errs)
}

func (e *ear) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.heard)
}

// awaits waits until a message is heard; it is told again, for a connection may be lost.
func (e *ear) awaits(t testing.TB, from *redisstore.Updates, message string) {
	t.Helper()
	redistest.Await(t, "message "+message, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		from.Publish(ctx, []byte(message))
		return slices.Contains(e.list(), message)
	})
}

func TestUpdatesIsHeard(t *testing.T) {
	url := redistest.Start(t).URL()
	here, there := openUpdates(t, url), openUpdates(t, url)
	other := listen(t, openUpdates(t, url, redisstore.WithPrefix("other:")))
	e := listen(t, here)
	messages := []string{"a", strings.Repeat("\x00\r\n\xff", 4<<10)}
	for _, message := range messages {
		if err := there.Publish(t.Context(), []byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Await(t, "two messages", func() bool { return len(e.list()) == 2 })
	if !slices.Equal(e.list(), messages) {
		t.Errorf("heard %q", e.list())
	}
	if list := other.list(); len(list) != 0 || e.times() != 1 {
		t.Errorf("under another prefix %d messages were heard; missed was called %d times, want once", len(list), e.times())
	}
}

// A subscription that was cut is told of, by whatever it was cut.
func TestUpdatesComesBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	here, there := openUpdates(t, server.URL()), openUpdates(t, server.URL())
	e := listen(t, here)
	for i, cut := range []func(){
		func() { server.Do("CLIENT", "KILL", "TYPE", "pubsub") },
		func() { server.Restart() },
		func() { // a silent connection is one that is lost
			failures := e.failures()
			server.Stop()
			defer server.Cont()
			redistest.Await(t, "the silence to be noticed", func() bool { return e.failures() > failures })
		},
	} {
		before := e.times()
		cut()
		redistest.Await(t, "the subscription to be made anew", func() bool { return e.times() > before })
		e.awaits(t, there, string(rune('a'+i)))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, err := range e.errs {
		if !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("a lost subscription: %v", err)
		}
	}
}

func TestUpdatesOnCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	var ears []*ear
	var all []*redisstore.Updates
	for range 6 { // each connected to one of the nodes, by chance
		all = append(all, openUpdates(t, cluster.URL()))
		ears = append(ears, listen(t, all[len(all)-1]))
	}
	for i, news := range all {
		for _, e := range ears {
			e.awaits(t, news, string(rune('a'+i)))
		}
	}
}

func TestUpdatesFollowsTheMaster(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	here, there := openUpdates(t, s.URL()), openUpdates(t, s.URL())
	e := listen(t, here)
	e.awaits(t, there, "before")
	s.Servers[0].Kill()
	redistest.Await(t, "the subscription to be made anew", func() bool { return e.times() > 1 })
	e.awaits(t, there, "after")
}

func TestUpdatesThatRedisRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.StartACL(t, "ann", "secret")
	admin := strings.Replace(server.URL(), "redis://", "redis://ann:secret@", 1)
	store, err := redisconn.OpenClient(t.Context(), admin, redisconn.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	user := store.B().Arbitrary("ACL", "SETUSER", "bob", "on", ">secret", "~*", "+@all", "resetchannels").Build()
	if err := store.Do(t.Context(), user).Error(); err != nil {
		t.Fatal(err)
	}
	news := openUpdates(t, strings.Replace(server.URL(), "redis://", "redis://bob:secret@", 1))
	err = news.Subscribe(t.Context(), func([]byte) {}, func() { t.Error("told to listen") })
	if err == nil || !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), "weir:news") {
		t.Errorf("Subscribe without the channel: %v", err)
	}
	if err := news.Publish(t.Context(), []byte("a")); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("Publish without the channel: %v", err)
	}
}

func TestUpdatesEnds(t *testing.T) {
	news := openUpdates(t, redistest.Start(t).URL())
	ctx, stop := context.WithCancel(t.Context())
	err := news.Subscribe(ctx, func([]byte) {}, stop)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	ended := make(chan error)
	go func() { ended <- news.Subscribe(context.Background(), func([]byte) {}, func() { go news.Close() }) }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("closed: no error")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("closed, and Listen goes on")
	}
	if _, err := redisstore.NewUpdates("redis://"); err == nil {
		t.Error("a URL without a host: no error")
	}
}
