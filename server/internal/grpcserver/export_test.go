package grpcserver

// Tick is a second for the bounds of connections.
func (s *Server) Tick() { s.connections.tick() }

// Bounds of tests.
const (
	FirstCall   = firstCall
	LateMessage = lateMessage
	StrangerAge = strangerAge
	MaxWatches  = maxWatches
)
