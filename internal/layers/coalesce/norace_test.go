//go:build !race

package coalesce_test

const (
	histories = 60
	schedules = 3000
)
