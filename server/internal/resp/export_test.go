package resp

import "reflect"

// Compiled is the number of cached limits.
func Compiled(s *Server) int { return s.limits.Len() }

// Waiting is the number of batches that wait for the store.
func Waiting(s *Server) int {
	s.batches.mu.Lock()
	defer s.batches.mu.Unlock()
	return len(s.batches.waiting)
}

// Limits exports the limits of clients; zero fields have their defaults.
type Limits = limits

func WithLimits(given Limits) Option {
	return func(s *Server) {
		to := reflect.ValueOf(&s.max).Elem()
		for i := range to.NumField() {
			if from := reflect.ValueOf(given).Field(i); !from.IsZero() {
				to.Field(i).Set(from)
			}
		}
	}
}
