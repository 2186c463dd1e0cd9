package weir

// Queues is of how many keys somebody waits or asks.
func (l *Limiter) Queues() int {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	return len(l.waiters.queues)
}
