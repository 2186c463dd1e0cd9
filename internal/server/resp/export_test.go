package resp

// Compiled is how many limits the server keeps ready.
func Compiled(s *Server) int { return len(s.limits.limits) }
