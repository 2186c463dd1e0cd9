package ratelimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/pprof"

	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// maxBody is the most bytes of a request at /json, as of a gRPC message.
const maxBody = 1 << 20

// Healthcheck answers GET /healthcheck: 200 while healthy returns true, else 500.
func Healthcheck(healthy func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !healthy() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		io.WriteString(w, "OK")
	})
}

// JSON answers POST /json, a RateLimitRequest in proto3 JSON, as the gRPC service answers it: 200, or 429 where the
// request is over a limit; 400 for what is no request, 500 for an error.
func JSON(s service.RateLimitServiceServer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			fail(w, http.StatusMethodNotAllowed)
			return
		}
		answer, err := ask(r.Context(), s, http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			fail(w, statusOf(err))
			return
		}
		text, err := protojson.Marshal(answer)
		if err != nil {
			fail(w, http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if answer.GetOverallCode() == service.RateLimitResponse_OVER_LIMIT {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		w.Write(text)
	})
}

var errBody = errors.New("no RateLimitRequest in proto3 JSON")

func ask(ctx context.Context, s service.RateLimitServiceServer, body io.Reader) (*service.RateLimitResponse, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	request := new(service.RateLimitRequest)
	if err := protojson.Unmarshal(text, request); err != nil {
		return nil, errBody
	}
	return s.ShouldRateLimit(ctx, request)
}

// statusOf is the HTTP status of an error. Codes of the service without a meaning of their own are mistakes of the
// request, which it answers 400 too.
func statusOf(err error) int {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errBody), status.Code(err) == codes.InvalidArgument, status.Code(err) == codes.Unknown:
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

func fail(w http.ResponseWriter, code int) { http.Error(w, http.StatusText(code), code) }

// Debug answers /rlconfig, /stats and /debug/pprof/.
func Debug(l *Limits, s *Stats) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "/debug/pprof/: profiles\n/rlconfig: limits of the configuration in force\n/stats: counts\n")
	})
	mux.HandleFunc("GET /rlconfig", func(w http.ResponseWriter, _ *http.Request) {
		if c := l.now.Load(); c != nil {
			io.WriteString(w, c.dump)
		}
	})
	mux.Handle("GET /stats", s)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
