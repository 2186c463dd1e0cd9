package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func TestFramework(t *testing.T) {
	adapttest.Run(t, adapttest.Framework{Route: "/items/{id}", Serve: func(
		t testing.TB, limited adapt.Middleware, s *adapttest.Service) string {
		router := newRouter(limited)
		for pattern, handler := range s.Handlers() {
			method, path, _ := strings.Cut(pattern, " ")
			router.HandleFunc(path, handler).Methods(method)
		}
		server := httptest.NewServer(router)
		t.Cleanup(server.Close)
		return server.URL
	}})
}
