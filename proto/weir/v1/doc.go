// Package weirv1 is the client, and the messages, of weir.v1.Limiter: the decisions of weir serve over gRPC.
package weirv1
