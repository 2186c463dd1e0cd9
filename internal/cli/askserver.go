package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/weirproject/weir/gate"
)

// maxAnswer is the limit of a server's answer in bytes.
const maxAnswer = 1 << 20

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
	token, err := s.secret("token-file", f.tokenFile, func(text string) { warnTo(s.Err, text) })
	if err != nil {
		return nil, err
	}
	var p peek
	r := &p.Request
	r.Method, r.Host, r.Path = a.Method, a.Host, a.sent
	r.Route, r.User, r.Service = a.Route, a.User, a.Service
	r.Client, r.Cookies, r.Descriptors = a.Client.String(), a.cookies, a.described
	r.Headers, r.Query = first(a.header), first(a.query)
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	e := &explanation{Store: "by the server " + f.url}
	err = server.post(ctx, "/v1/peek", token, &p, e)
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

// post sends a document and reads the answer, whatever its status.
func (c *serverClient) post(ctx context.Context, path, token string, document, answer any) error {
	body, err := json.Marshal(document)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, "POST", c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return err
	}
	var problem struct{ Outcome, Detail string }
	if json.Unmarshal(text, &problem) != nil || problem.Outcome == "" {
		return fmt.Errorf("the server answered %s: %s", response.Status, strings.TrimSpace(problem.Detail))
	}
	return json.Unmarshal(text, answer)
}
