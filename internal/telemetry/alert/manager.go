package alert

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir/internal/telemetry"
)

// A Config describes a Manager.
type Config struct {
	Settings
	// Read returns the state of the server. It is called every five seconds.
	Read func(ctx context.Context) *Reading
	// Shared is what the nodes of a Redis know of each other's alerts; nil: this node is alone.
	Shared *Shared
	// Tell is called with each alert that is raised or, with Resolved, resolved: on one of the nodes.
	Tell func(a *telemetry.Alert)
	Log  *slog.Logger
}

// A Manager raises and resolves alerts from Start to Close.
type Manager struct {
	Config
	watch *watch
	told  map[string]telemetry.Alert // what fires by what this node knows, by id
	apart bool                       // Shared failed

	mu     sync.Mutex
	firing []telemetry.Alert

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// New makes a Manager.
func New(c Config) *Manager {
	m := &Manager{Config: c, watch: newWatch(c.Settings), told: make(map[string]telemetry.Alert)}
	m.watch.alone = c.Shared == nil
	return m
}

// Start starts it. Read and Tell may use the Manager.
func (m *Manager) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.ended.Go(func() { m.run(ctx) })
}

// Close ends a Manager that was started. Alerts that fire stay as they are: a restart is no resolution.
func (m *Manager) Close() {
	m.cancel()
	m.ended.Wait()
	if m.Shared != nil {
		m.Shared.close()
	}
}

// Firing returns the alerts that fire, on all nodes that share a Redis.
func (m *Manager) Firing() []telemetry.Alert {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.firing
}

func (m *Manager) run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			m.step(ctx, now.UTC())
		case <-ctx.Done():
			return
		}
	}
}

func (m *Manager) step(ctx context.Context, now time.Time) {
	reading := m.Read(ctx)
	m.watch.count(reading)
	if m.Shared != nil {
		var err error
		m.watch.others, err = m.Shared.count(ctx, m.watch.own)
		m.watch.alone, m.watch.apart = err != nil, err != nil
	}
	own := m.watch.step(reading, now)
	if m.watch.leftOut > 0 {
		m.Log.Warn("alerts: too many fire, others are left out", "most", maxFiring, "left_out", m.watch.leftOut)
	}
	all, changes := m.agree(ctx, own, now)
	byID := func(a, b telemetry.Alert) int { return strings.Compare(ID(&a), ID(&b)) }
	slices.SortFunc(all, byID)
	slices.SortFunc(changes, byID)
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	m.firing = all
	m.mu.Unlock()
	for i := range changes {
		m.Tell(&changes[i])
	}
}

// agree returns what fires on all nodes, and the changes that this node tells. While the Redis does not answer, each
// node tells its own.
func (m *Manager) agree(ctx context.Context, own []telemetry.Alert, now time.Time) (all, changes []telemetry.Alert) {
	if m.Shared != nil {
		all, raised, resolved, err := m.Shared.sync(ctx, own)
		if m.sayApart(err); err == nil {
			for _, a := range raised {
				if _, told := m.told[ID(&a)]; !told { // while it was alone
					changes = append(changes, a)
				}
			}
			for _, a := range resolved {
				changes = append(changes, ended(a, now))
			}
			m.remember(own)
			return all, changes
		}
	}
	before := m.told
	m.remember(own)
	for _, a := range own {
		if _, told := before[ID(&a)]; !told {
			changes = append(changes, a)
		}
	}
	for id, a := range before {
		if _, still := m.told[id]; !still {
			changes = append(changes, ended(a, now))
		}
	}
	return own, changes
}

func (m *Manager) remember(firing []telemetry.Alert) {
	m.told = make(map[string]telemetry.Alert, len(firing))
	for _, a := range firing {
		m.told[ID(&a)] = a
	}
}

func ended(a telemetry.Alert, now time.Time) telemetry.Alert {
	a.Resolved = now
	return a
}

// sayApart logs when the Redis of the alerts does not answer, and when it does again.
func (m *Manager) sayApart(err error) {
	if apart := err != nil; apart != m.apart {
		m.apart = apart
		if apart {
			m.Log.Warn("alerts: each node tells its own until Redis responds", "error", err)
		}
	}
}
