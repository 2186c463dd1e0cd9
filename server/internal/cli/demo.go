package cli

import (
	"fmt"
	"net"
	"net/http"
)

// demo is the --upstream of the built-in service, for a first try of the gateway.
const demo = "demo"

// startDemo serves the demo on a free port of loopback until the process ends. It is a separate HTTP
// server, so that the gateway treats it like any other upstream.
func startDemo() (url string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		Handler:           http.HandlerFunc(greet),
	}
	go server.Serve(listener)
	return "http://" + listener.Addr().String(), nil
}

func greet(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "Hello from the service behind weir: %s %s\n", r.Method, r.URL.Path)
}
