package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/weirproject/weir/gate"
)

// A peek is the body of POST /v1/peek.
type peek struct {
	Request struct {
		Method      string            `json:"method,omitempty"`
		Host        string            `json:"host,omitempty"`
		Path        string            `json:"path,omitempty"`
		Route       string            `json:"route,omitempty"`
		User        string            `json:"user,omitempty"`
		Service     string            `json:"service,omitempty"`
		Client      string            `json:"client,omitempty"`
		Headers     map[string]string `json:"headers,omitempty"`
		Query       map[string]string `json:"query,omitempty"`
		Cookies     map[string]string `json:"cookies,omitempty"`
		Descriptors map[string]string `json:"descriptors,omitempty"`
	} `json:"request"`
}

// askServer has a running server explain the request by its own rules.
func askServer(ctx context.Context, s *System, f *serverFlags, a *explainedRequest) (*explanation, error) {
	server, err := f.client(s)
	if err != nil {
		return nil, err
	}
	server.token, err = s.secret("token-file", f.tokenFile, func(text string) { warnTo(s.Err, text) })
	if err != nil {
		return nil, err
	}
	var p peek
	r := &p.Request
	r.Method, r.Host, r.Path = a.Method, a.Host, a.sent
	r.Route, r.User, r.Service = a.Route, a.User, a.Service
	r.Client, r.Cookies, r.Descriptors = a.Client.String(), a.cookies, a.described
	r.Headers, r.Query = first(a.header), first(a.query)
	body, err := json.Marshal(&p)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	response, text, err := server.send(ctx,
		&serverRequest{method: http.MethodPost, path: "/v1/peek", kind: "application/json", body: body})
	if err != nil {
		return nil, err
	}
	var answer struct{ Outcome, Detail string } // also if the status is not 200
	if json.Unmarshal(text, &answer) != nil || answer.Outcome == "" {
		return nil, fmt.Errorf("the server answered %s: %s", response.Status, strings.TrimSpace(answer.Detail))
	}
	e := &explanation{Store: "by the server " + f.url}
	err = json.Unmarshal(text, e)
	e.Passed = e.Outcome == gate.Passed.String()
	return e, err
}

// first returns the first value of each name.
func first(values map[string][]string) map[string]string {
	table := make(map[string]string, len(values))
	for name, list := range values {
		table[name] = list[0]
	}
	return table
}
