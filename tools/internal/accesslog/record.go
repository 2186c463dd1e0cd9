// Package accesslog reads the access logs of web servers, proxies and load balancers.
package accesslog

import "net/netip"

// Unknown is a number that the log does not have.
const Unknown = -1

// A Record is a request of a log. A text that the log does not have is "".
type Record struct {
	// Time is when the request started if the format has that or the duration, else when it ended; in microseconds
	// since 1970.
	Time int64
	// Took is the duration in microseconds, or Unknown.
	Took int64

	Client netip.Addr // of the connection; not valid if the log does not have it
	User   string     // who was authenticated
	Method string
	Host   string
	Target string // as the client sent it: a path with its query

	// Of a RateLimitRequest of Envoy; without descriptors it is an HTTP request.
	Domain      string
	Descriptors []Descriptor
	Hits        int64 // Unknown: those that the rules say

	Status int   // of the response, or Unknown
	Bytes  int64 // of the response, or Unknown

	Agent string // User-Agent
	// Fields are header fields of the request that the format has: User-Agent, Referer, X-Forwarded-For and others,
	// as pairs of a canonical name and a value.
	Fields []Field

	File int   // which file of the log, from 0
	Line int64 // in that file, from 1
}

// A Field is a header field of a request.
type Field struct{ Name, Value string }
