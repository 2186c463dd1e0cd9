package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirproject/weir/gate"
)

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
	request := map[string]any{
		"method": a.Method, "host": a.Host, "path": a.sent, "route": a.Route, "user": a.User, "service": a.Service,
		"client": a.peer, "headers": sent(a.header), "query": first(a.query), "cookies": a.cookies,
		"descriptors": inOrder{a.DescriptorKeys, a.described},
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	response, text, err := server.peek(ctx, map[string]any{"request": request, "routed": true})
	if err == nil && strings.Contains(string(text), "unknown field routed") {
		a.doubts = append(a.doubts, "the server is older, and does not say which of its routes it would choose")
		response, text, err = server.peek(ctx, map[string]any{"request": request})
	}
	if err != nil {
		return nil, err
	}
	var answer struct{ Outcome, Detail, Route, Service, Client string } // also if the status is not 200
	if json.Unmarshal(text, &answer) != nil || answer.Outcome == "" {
		return nil, fmt.Errorf("the server answered %s: %s", response.Status, strings.TrimSpace(answer.Detail))
	}
	if answer.Route != "" {
		a.Route, a.Service, a.routed = answer.Route, answer.Service, true
	}
	if client, err := netip.ParseAddr(answer.Client); err == nil { // by the proxies that the server trusts
		a.Client, a.assumed, a.doubts = client, a.assumed && answer.Client == a.peer, nil
	}
	if a.body != "" {
		a.doubts = append(a.doubts, "the server is not told of the body: fields of bodies count as missing")
	}
	e := &explanation{Store: "by the server " + f.url}
	err = json.Unmarshal(text, e)
	e.Passed = e.Outcome == gate.Passed.String()
	return e, err
}

// peek asks the server how it would decide.
func (c *serverClient) peek(ctx context.Context, question map[string]any) (*http.Response, []byte, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, nil, err
	}
	return c.send(ctx, &serverRequest{method: http.MethodPost, path: "/v1/peek", kind: "application/json", body: body})
}

// first returns the first value of each name.
func first(values map[string][]string) map[string]string {
	table := make(map[string]string, len(values))
	for name, list := range values {
		table[name] = list[0]
	}
	return table
}

// sent are the first values of headers; of those that proxies lengthen all.
func sent(header http.Header) map[string]string {
	table := first(header)
	for _, name := range []string{"X-Forwarded-For", "Forwarded"} {
		if lines := header.Values(name); len(lines) > 1 {
			table[name] = strings.Join(lines, ", ")
		}
	}
	return table
}

// inOrder is an object whose members keep their order: match.descriptor_keys depends on it.
type inOrder struct {
	names  []string
	values map[string]string
}

// MarshalJSON implements json.Marshaler.
func (o inOrder) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, name := range o.names {
		if i > 0 {
			b = append(b, ',')
		}
		member, err := json.Marshal(map[string]string{name: o.values[name]})
		if err != nil {
			return nil, err
		}
		b = append(b, member[1:len(member)-1]...)
	}
	return append(b, '}'), nil
}
