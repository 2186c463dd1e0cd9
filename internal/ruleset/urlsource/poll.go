package urlsource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// fetch polls once. The update is the content of the URL, with or without mistakes; the error means that there is no
// update.
func (s *Source) fetch(ctx context.Context, conditional bool) (n ruleset.Update, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if s.center != nil {
		text, err := s.center.read(ctx)
		if err != nil {
			return n, s.late(ctx, err)
		}
		return s.parse(text), nil
	}
	request, err := s.request(ctx, conditional)
	if err != nil {
		return n, err
	}
	header, body, err := s.call(request, rules.MaxFile+1)
	asked := request.Header.Get("If-None-Match") + request.Header.Get("If-Modified-Since")
	if errors.Is(err, errUnchanged) && asked != "" {
		return s.content, nil
	}
	if err != nil {
		return n, s.late(ctx, err)
	}
	s.remember(header)
	return s.parse(body), nil
}

// A statusError is an answer without content. 304 is one.
type statusError int

const errUnchanged = statusError(http.StatusNotModified)

func (e statusError) Error() string {
	return fmt.Sprintf("the server answers %d %s", int(e), http.StatusText(int(e)))
}

// call sends a request, and reads at most limit bytes of the answer.
func (s *Source) call(request *http.Request, limit int64) (http.Header, []byte, error) {
	response, err := s.send(request)
	if err != nil {
		return nil, nil, err
	}
	body, err := readAll(response, limit)
	return response.Header, body, err
}

// readAll reads at most limit bytes of an answer, and closes it.
func readAll(response *http.Response, limit int64) ([]byte, error) {
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, limit))
	if err != nil {
		return nil, fmt.Errorf("the answer breaks off: %w", err)
	}
	return body, nil
}

// send returns a response with the status 200. Errors do not show the query.
func (s *Source) send(request *http.Request) (*http.Response, error) {
	request.Header.Set("User-Agent", "weir")
	response, err := s.client.Do(request)
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return nil, wrapped.Err
	}
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	s.retryAfter = retryAfter(response.Header.Get("Retry-After"))
	response.Body.Close()
	return nil, statusError(response.StatusCode)
}

// late replaces an error by a timeout if the time was over.
func (s *Source) late(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v: %w", s.timeout, context.DeadlineExceeded)
	}
	return err
}

func (s *Source) request(ctx context.Context, conditional bool) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/yaml, text/yaml;q=0.9, */*;q=0.5")
	token, err := s.secret()
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if conditional && s.etag != "" {
		request.Header.Set("If-None-Match", s.etag)
	}
	if conditional && s.modified != "" {
		request.Header.Set("If-Modified-Since", s.modified)
	}
	return request, nil
}

// parse makes an update of a body, unless it is unchanged.
func (s *Source) parse(body []byte) ruleset.Update {
	sum := sha256.Sum256(body)
	revision := hex.EncodeToString(sum[:12])
	if revision == s.content.Revision {
		return s.content
	}
	file, err := rules.Parse(s.name, body)
	return ruleset.Update{File: file, Err: err, Revision: revision}
}

// remember keeps the validators for the next request. A Last-Modified is of use only if it is at
// least a second older than the response: within its second, the file can have changed again (RFC
// 9110, section 8.8.2.2).
func (s *Source) remember(h http.Header) {
	s.etag, s.modified = "", ""
	if etag := h.Get("ETag"); len(etag) <= bounds.Text && printable(etag) {
		s.etag = etag
	}
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	date, dateErr := http.ParseTime(h.Get("Date"))
	if err == nil && dateErr == nil && date.Sub(modified) >= time.Second {
		s.modified = modified.UTC().Format(http.TimeFormat)
	}
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
}

// retryAfter reads seconds or a date; 0 for a missing or malformed value.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// maxToken is the length of the longest token, in bytes.
const maxToken = 8 << 10

// readToken returns the only word of a file. Errors never show it.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("the token: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("the token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(text) > maxToken || !printable(token) || strings.Contains(token, " ") {
		return "", fmt.Errorf("the token: %s must have one word, of printable ASCII, in at most %d bytes", path,
			maxToken)
	}
	return token, nil
}
