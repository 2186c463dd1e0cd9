// Package agents has the tests of limits of agents with the official SDKs of the Model Context Protocol for Go and
// TypeScript, as clients and as servers, on the built program. It is a module of its own, so that programs that import
// weir do not get the SDK.
package agents
