package weir

// Queues is the number of keys that callers wait or ask for.
func (l *Limiter) Queues() int {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	return len(l.waiters.queues)
}

// Algorithms is one more than the largest number of an algorithm.
const Algorithms = algorithms
