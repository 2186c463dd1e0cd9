// Package webtest sends requests of tests over real sockets.
package webtest

import (
	"io"
	"maps"
	"net/http"
	"testing"
)

// Send sends a request with fields, which are names and values in turn and replace those that it has: a name that
// occurs twice has two values, and Host is the host. It returns the response, whose body is closed, and the body. An
// error fails the test.
func Send(t testing.TB, client *http.Client, request *http.Request, fields ...string) (*http.Response, string) {
	t.Helper()
	given := make(http.Header)
	for i := 0; i < len(fields); i += 2 {
		given.Add(fields[i], fields[i+1])
	}
	maps.Copy(request.Header, given)
	if host := given.Get("Host"); host != "" {
		request.Host = host
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}
