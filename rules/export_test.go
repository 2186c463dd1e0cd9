package rules

// Visited is how many nodes of the tree Match looks at, and how many questions it asks.
func (s *Set) Visited(r *Request) int {
	w := matcher{request: r}
	w.hosts(s)
	return w.visited
}
