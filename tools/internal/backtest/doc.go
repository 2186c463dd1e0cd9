// Package backtest replays access logs through the gate and the in-memory store of a server, by the clock of the log.
package backtest
