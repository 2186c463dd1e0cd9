package observe

import (
	"encoding/json"
	"net/http"
	"sync/atomic"

	"github.com/weirproject/weir/internal/tally"
)

// health is the state behind /readyz.
type health struct {
	loaded   atomic.Bool // rules are in force
	stale    atomic.Bool // the last load of rules failed
	partial  atomic.Bool // some sources were never loaded
	silent   atomic.Bool // the last store call failed
	stopping atomic.Bool
	details  atomic.Pointer[func() []string] // problems of sources; may be nil
	calls    tally.InFlight
	stuck    atomic.Bool // one of the calls does not return
	probe    atomic.Pointer[probe]
}

// Stopping makes /readyz answer 503 from now on.
func (m *Metrics) Stopping() { m.health.stopping.Store(true) }

// Incomplete makes /readyz answer 503 while a requested source of rules was never loaded, even if
// others are in force.
func (m *Metrics) Incomplete(yes bool) { m.health.partial.Store(yes) }

// Degraded adds the lines of list to the body of /readyz. list is called for each request; it
// returns a few short lines, each a problem of a source of rules.
func (m *Metrics) Degraded(list func() []string) { m.health.details.Store(&list) }

// Live answers /livez: 200, and 503 while LookForStuck finds a call that only a restart can end. It checks no
// dependency, so that an outage elsewhere never restarts the process.
func (m *Metrics) Live() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if m.Stuck() {
			writeStatus(w, http.StatusServiceUnavailable, &status{Status: stuckCall})
			return
		}
		writeStatus(w, http.StatusOK, &status{Status: "alive"})
	})
}

// Ready answers /readyz: 200 once rules are in force and the store decides, 503 before that, while Incomplete, after
// Stopping, and while the decision of Probe does not return. An unavailable store leaves it at 200: the rules'
// on_store_error decides meanwhile, and another node would find the same store unavailable, so that moving the traffic
// there only adds to the outage. The body lists such problems as degraded.
func (m *Metrics) Ready() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s, code := m.health.status()
		writeStatus(w, code, s)
	})
}

// ReadyAlone is Ready for callers who may not see the names of rules and sources: the body has no list of problems.
func (m *Metrics) ReadyAlone() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s, code := m.health.status()
		s.Degraded = nil
		writeStatus(w, code, s)
	})
}

// IsReady reports whether Ready answers 200.
func (m *Metrics) IsReady() bool { return m.health.notReady() == "" }

// Serves reports whether Ready answers 200, whatever rules are in force.
func (m *Metrics) Serves() bool {
	p := m.health.probe.Load()
	return !m.health.stopping.Load() && !m.health.stuck.Load() && (p == nil || p.notReady() == "")
}

// stuckCall is the status while a call of an embedded store does not return.
const stuckCall = "stuck: a call of the store in memory does not return"

type status struct {
	Status   string   `json:"status"`
	Degraded []string `json:"degraded,omitempty"`
}

func (h *health) status() (*status, int) {
	s, code := &status{Status: "ready"}, http.StatusOK
	if why := h.notReady(); why != "" {
		s.Status, code = why, http.StatusServiceUnavailable
	}
	if h.silent.Load() {
		s.Degraded = append(s.Degraded,
			"the last store call failed; on_store_error of each rule decides while the store does not respond")
	}
	if h.stale.Load() {
		s.Degraded = append(s.Degraded, "the last load of rules failed; the previous rules are in force")
	}
	if list := h.details.Load(); list != nil {
		s.Degraded = append(s.Degraded, (*list)()...)
	}
	return s, code
}

// notReady is why the server is not ready; "": it is.
func (h *health) notReady() string {
	switch {
	case h.stopping.Load():
		return "stopping"
	case !h.loaded.Load():
		return "starting: no rules are loaded yet"
	case h.partial.Load():
		return "starting: not all rules are loaded yet"
	case h.stuck.Load():
		return stuckCall
	}
	if p := h.probe.Load(); p != nil {
		return p.notReady()
	}
	return ""
}

func writeStatus(w http.ResponseWriter, code int, s *status) {
	text, err := json.Marshal(s)
	if err != nil { // impossible for this type
		code = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	w.Write(append(text, '\n'))
}
