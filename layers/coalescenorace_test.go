//go:build !race

package layers

const (
	histories = 60
	schedules = 3000
)
