//go:build !race

package layers

const schedules = 3000
