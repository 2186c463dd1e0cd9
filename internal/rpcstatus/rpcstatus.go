// Package rpcstatus answers calls of gRPC that a front end over HTTP refuses. A gRPC client takes an HTTP status such
// as 429 for "unavailable", which it retries. The answer is the trailers alone, as in the gRPC protocol over HTTP/2.
package rpcstatus

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Is reports whether a request is a call of gRPC or gRPC-Web.
func Is(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';' || strings.HasPrefix(rest, "-web"))
}

// An Answer is a status of gRPC.
type Answer struct {
	Status   int  // of HTTP
	Exceeded bool // a limit refused: the code is RESOURCE_EXHAUSTED, whatever the status
	Message  string
	// Wait is how long to wait before the call is repeated; 0: it is not known, or waiting does not help.
	Wait time.Duration
}

// Codes of gRPC.
const (
	invalidArgument   = 3
	deadlineExceeded  = 4
	alreadyExists     = 6
	permissionDenied  = 7
	resourceExhausted = 8
	unimplemented     = 12
	internalError     = 13
	unavailable       = 14
)

// code is the code of gRPC for the status of HTTP.
func (a *Answer) code() uint64 {
	switch {
	case a.Exceeded:
		return resourceExhausted
	case a.Status == http.StatusGatewayTimeout:
		return deadlineExceeded
	case a.Status == http.StatusConflict:
		return alreadyExists
	case a.Status == http.StatusForbidden:
		return permissionDenied
	case a.Status == http.StatusNotFound, a.Status == http.StatusNotImplemented:
		return unimplemented
	case a.Status == http.StatusTooManyRequests, a.Status == http.StatusRequestEntityTooLarge:
		return resourceExhausted
	case a.Status == http.StatusInternalServerError:
		return internalError
	case a.Status < http.StatusInternalServerError:
		return invalidArgument
	}
	return unavailable
}

// maxPushback is the longest wait after which a client is told to retry within the call.
const maxPushback = time.Minute

// Write answers a call. The caller may have set fields such as RateLimit before: they are metadata.
func (a *Answer) Write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	h.Set("Content-Type", kind)
	h.Set("Grpc-Status", strconv.FormatUint(a.code(), 10))
	h.Set("Grpc-Message", escaped(a.Message))
	if a.Exceeded {
		h.Set("Grpc-Retry-Pushback-Ms", a.pushback())
		h.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(a.details()))
	}
	w.WriteHeader(http.StatusOK)
}

func (a *Answer) pushback() string {
	if a.Wait <= 0 || a.Wait > maxPushback {
		return "-1"
	}
	return strconv.FormatInt(int64((a.Wait+time.Millisecond-1)/time.Millisecond), 10)
}

// details is a google.rpc.Status with a RetryInfo, if the wait is known. Its few fields do not need the library of
// protocol buffers, which no user of httplimit shall compile.
func (a *Answer) details() []byte {
	status := number(nil, 1, a.code())
	status = text(status, 2, []byte(a.Message))
	if a.Wait <= 0 {
		return status
	}
	delay := number(nil, 1, uint64(a.Wait/time.Second))
	delay = number(delay, 2, uint64(a.Wait%time.Second))
	detail := text(nil, 1, []byte("type.googleapis.com/google.rpc.RetryInfo"))
	detail = text(detail, 2, text(nil, 1, delay))
	return text(status, 3, detail)
}

// number and text append a field of a message: a varint, and bytes with their length.
func number(to []byte, field byte, n uint64) []byte {
	return binary.AppendUvarint(append(to, field<<3), n)
}

func text(to []byte, field byte, content []byte) []byte {
	to = binary.AppendUvarint(append(to, field<<3|2), uint64(len(content)))
	return append(to, content...)
}

// escaped is the percent-encoding of Grpc-Message.
func escaped(message string) string {
	var b strings.Builder
	for i := range len(message) {
		if c := message[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
