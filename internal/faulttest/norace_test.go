//go:build !race

package faulttest_test

const slower = 1
