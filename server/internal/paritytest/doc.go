// Package paritytest tests that a backtest refuses exactly the requests that the gateway refuses.
package paritytest
