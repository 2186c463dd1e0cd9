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
	updates, err := redisstore.NewUpdates(url, append([]redisstore.Option{redisstore.WithTimeout(time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { updates.Close() })
	return updates
}

// A subscriber subscribes again and again, and keeps what it receives.
type subscriber struct {
	mu       sync.Mutex
	received []string
	missed   int
	errs     []error
}

func subscribe(t testing.TB, updates *redisstore.Updates) *subscriber {
	t.Helper()
	e := new(subscriber)
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			err := updates.Subscribe(ctx, e.receive, e.miss)
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

func (e *subscriber) receive(message []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.received = append(e.received, string(message))
}

func (e *subscriber) miss() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.missed++
}

func (e *subscriber) times() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.missed
}

func (e *subscriber) failures() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.errs)
}

func (e *subscriber) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.received)
}

// awaits waits until a message is received; it is published again, because a connection may be lost.
func (e *subscriber) awaits(t testing.TB, from *redisstore.Updates, message string) {
	t.Helper()
	redistest.Await(t, "message "+message, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		from.Publish(ctx, []byte(message))
		return slices.Contains(e.list(), message)
	})
}

func TestUpdatesAreReceived(t *testing.T) {
	url, patient := redistest.Start(t).URL(), redisstore.WithTimeout(time.Minute) // none is lost on a busy machine
	here, there := openUpdates(t, url, patient), openUpdates(t, url, patient)
	other := subscribe(t, openUpdates(t, url, patient, redisstore.WithPrefix("other:")))
	e := subscribe(t, here)
	messages := []string{"a", strings.Repeat("\x00\r\n\xff", 4<<10)}
	for _, message := range messages {
		if err := there.Publish(t.Context(), []byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Await(t, "two messages", func() bool { return len(e.list()) == 2 })
	if !slices.Equal(e.list(), messages) {
		t.Errorf("received %q", e.list())
	}
	if list := other.list(); len(list) != 0 || e.times() != 1 {
		t.Errorf("under another prefix %d messages were received; missed was called %d times, want once", len(list), e.times())
	}
}

// Each way of cutting a subscription is reported, and it is made anew.
func TestUpdatesSubscribeAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	here, there := openUpdates(t, server.URL()), openUpdates(t, server.URL())
	e := subscribe(t, here)
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
	var subscribers []*subscriber
	var all []*redisstore.Updates
	for range 6 { // each connected to one of the nodes, by chance
		all = append(all, openUpdates(t, cluster.URL()))
		subscribers = append(subscribers, subscribe(t, all[len(all)-1]))
	}
	for i, updates := range all {
		for _, e := range subscribers {
			e.awaits(t, updates, string(rune('a'+i)))
		}
	}
}

func TestUpdatesFollowTheMaster(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	here, there := openUpdates(t, s.URL()), openUpdates(t, s.URL())
	e := subscribe(t, here)
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
	user := redisconn.Command{Name: "ACL", Args: []string{"SETUSER", "bob", "on", ">secret", "~*", "+@all", "resetchannels"}}
	if err := store.Do(t.Context(), user).Err(); err != nil {
		t.Fatal(err)
	}
	updates := openUpdates(t, strings.Replace(server.URL(), "redis://", "redis://bob:secret@", 1))
	err = updates.Subscribe(t.Context(), func([]byte) {}, func() { t.Error("a refused subscription is confirmed") })
	if err == nil || !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), "weir:news") {
		t.Errorf("Subscribe without the channel: %v", err)
	}
	if err := updates.Publish(t.Context(), []byte("a")); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("Publish without the channel: %v", err)
	}
}

func TestUpdatesEnd(t *testing.T) {
	updates := openUpdates(t, redistest.Start(t).URL())
	ctx, stop := context.WithCancel(t.Context())
	err := updates.Subscribe(ctx, func([]byte) {}, stop)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	ended := make(chan error)
	go func() {
		ended <- updates.Subscribe(context.Background(), func([]byte) {}, func() { go updates.Close() })
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("closed: no error")
		}
	case <-time.After(time.Minute):
		t.Fatal("closed, and Listen goes on")
	}
	if _, err := redisstore.NewUpdates("redis://"); err == nil {
		t.Error("a URL without a host: no error")
	}
}
