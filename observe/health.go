package observe

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
)

// health is what /readyz tells.
type health struct {
	loaded   atomic.Bool // rules are in force
	stale    atomic.Bool // later ones could not be loaded
	partial  atomic.Bool // some were never loaded
	silent   atomic.Bool // the store did not answer
	stopping atomic.Bool
	details  atomic.Pointer[func() []string] // of sources; nil: none are told
}

// up is weir_store_up.
func (h *health) up() float64 {
	if h.silent.Load() {
		return 0
	}
	return 1
}

// Stopping tells that the server takes no new work: from now on it is not ready.
func (m *Metrics) Stopping() { m.health.stopping.Store(true) }

// Incomplete tells whether rules that were asked for were never loaded, though others are
// in force: as long as that is so, the server is not ready.
func (m *Metrics) Incomplete(yes bool) { m.health.partial.Store(yes) }

// Degraded has /readyz list what list returns: what is wrong with sources of rules. It is called for
// each request, and returns a few short lines.
func (m *Metrics) Degraded(list func() []string) { m.health.details.Store(&list) }

// Live answers /livez: 200 while the process can answer anything. It looks at nothing, so
// that no outage of something else has the process restarted.
func (m *Metrics) Live() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeStatus(w, http.StatusOK, &status{Status: "alive"})
	})
}

// Ready answers /readyz: 200 as soon as rules are in force, and not Incomplete, and until
// Stopping, else 503. A
// store that does not answer does not change that: while the rules' policy decides, sending
// the traffic elsewhere, where the same store does not answer, would only add to the
// outage. What is degraded stands in the body.
func (m *Metrics) Ready() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s, code := m.health.status()
		writeStatus(w, code, s)
	})
}

type status struct {
	Status   string   `json:"status"`
	Degraded []string `json:"degraded,omitempty"`
}

func (h *health) status() (*status, int) {
	s, code := &status{Status: "ready"}, http.StatusOK
	switch {
	case h.stopping.Load():
		s.Status, code = "stopping", http.StatusServiceUnavailable
	case !h.loaded.Load():
		s.Status, code = "starting: no rules are loaded yet", http.StatusServiceUnavailable
	case h.partial.Load():
		s.Status, code = "starting: not all rules are loaded yet", http.StatusServiceUnavailable
	}
	if h.silent.Load() {
		s.Degraded = append(s.Degraded, "the store does not answer; the rules' on_store_error decides")
	}
	if h.stale.Load() {
		s.Degraded = append(s.Degraded, "the last rules could not be loaded; those before are in force")
	}
	if list := h.details.Load(); list != nil {
		s.Degraded = append(s.Degraded, (*list)()...)
	}
	return s, code
}

func writeStatus(w http.ResponseWriter, code int, s *status) {
	text, err := json.Marshal(s)
	if err != nil { // not of these types
		code = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	w.Write(append(text, '\n'))
}
