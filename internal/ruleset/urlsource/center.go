package urlsource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

const (
	// longPoll is how long a center is asked to wait for a change. Afterwards the rules are read all the same, so that
	// a change that the center did not announce is found too.
	longPoll = 60 * time.Second
	// patience is how much later than asked a center may answer.
	patience = 30 * time.Second
	// minGap is the least time between two reads, for centers that announce changes which change nothing.
	minGap = time.Second
	// maxAnswer is the length of the longest JSON text with a file of rules in it: each byte may be escaped, as \u001f.
	maxAnswer = 6*rules.MaxFile + 64<<10
	// maxNotice is the length of the longest announcement that is read.
	maxNotice = 64 << 10
)

// A center is the protocol of a configuration center.
type center interface {
	// read returns the text of the rules, and remembers its version for await.
	read(ctx context.Context) ([]byte, error)
	// await returns when the rules may have changed since read, or after longPoll.
	await(ctx context.Context) error
}

// centerOf takes the name of a protocol from the scheme of a URL. Without one the center is nil.
func (s *Source) centerOf(u *url.URL) (center, error) {
	protocol, scheme, found := strings.Cut(u.Scheme, "+")
	if !found {
		return nil, nil
	}
	u.Scheme = scheme
	path := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
	switch protocol {
	case "consul":
		return s.newConsul(path)
	case "nacos":
		return s.newNacos(path)
	case "apollo":
		return s.newApollo(path)
	case "etcd":
		return s.newEtcd(path)
	}
	return nil, &weir.InputError{Field: "url", Given: protocol + "+" + scheme,
		Allowed: "https, consul+https, nacos+https, apollo+https, etcd+https"}
}

// parts checks that a URL has all parts of a path, and only the parameters that its center has.
func (s *Source) parts(path []string, allowed string, parameters ...string) error {
	want := strings.Count(allowed, "/") - 2
	for name := range s.url.Query() {
		if !slices.Contains(parameters, name) {
			return &weir.InputError{Field: "url", Given: "the parameter " + name, Allowed: allowed}
		}
	}
	if len(path) != want || slices.Contains(path, "") {
		return &weir.InputError{Field: "url", Given: s.name, Allowed: allowed}
	}
	return nil
}

func (s *Source) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longPoll+patience)
	defer cancel()
	return s.center.await(ctx)
}

// ask makes a request of a center's address.
func (s *Source) ask(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Request,
	error) {
	u := &url.URL{Scheme: s.url.Scheme, Host: s.url.Host, Path: path, RawQuery: query.Encode()}
	return http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
}

// authorized sends a request with the token of a login. A center that refuses it is asked once more after a login, by
// the name and the password in the token file: the first request has no token, and tokens expire.
func (s *Source) authorized(ctx context.Context, login func(ctx context.Context, name, password string) error,
	request func() (*http.Request, error)) (*http.Response, error) {
	response, err := s.made(request)
	var status statusError
	if s.tokenFile == "" || !errors.As(err, &status) || status < 400 || status >= 500 {
		return response, err
	}
	token, err := readToken(s.tokenFile)
	if err != nil {
		return nil, err
	}
	name, password, found := strings.Cut(token, ":")
	if !found {
		return nil, fmt.Errorf("the token: %s must have a name and a password, as name:password", s.tokenFile)
	}
	if err := login(ctx, name, password); err != nil {
		return nil, fmt.Errorf("the login of %s: %w", name, err)
	}
	return s.made(request)
}

func (s *Source) made(make func() (*http.Request, error)) (*http.Response, error) {
	request, err := make()
	if err != nil {
		return nil, err
	}
	return s.send(request)
}

// secret returns the word in the token file; it is empty without one.
func (s *Source) secret() (string, error) {
	if s.tokenFile == "" {
		return "", nil
	}
	return readToken(s.tokenFile)
}

// callJSON sends a request, and decodes the answer.
func (s *Source) callJSON(request *http.Request, limit int64, into any) error {
	_, body, err := s.call(request, limit)
	if err != nil {
		return err
	}
	return decode(body, into)
}

// decode reads a JSON answer. Its text is not shown, as it may have a secret in it.
func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the answer is not the JSON that was expected: %w", err)
	}
	return nil
}
