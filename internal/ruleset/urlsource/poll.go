package urlsource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

// A poller is the state of one Run.
type poller struct {
	*Source
	ctx     context.Context
	updates chan<- ruleset.Update

	content  ruleset.Update // read last, with or without mistakes
	etag     string         // of content
	modified string
	last     ruleset.Update // sent last
	sent     bool

	failures   int
	retryAfter time.Duration // requested by the server
}

// look polls, and sends the result if it has changed or has waiters.
func (p *poller) look(waiters []ruleset.Waiter) {
	p.retryAfter = 0
	n, err := p.fetch(len(waiters) == 0)
	if over := context.Cause(p.ctx); over != nil { // the failure is the shutdown's
		ruleset.Answer(waiters, "")(over)
		return
	}
	if err != nil {
		p.failures++
		n = ruleset.Update{Err: fmt.Errorf("%s: %w", p.name, err)}
	} else {
		p.failures, p.content = 0, n
	}
	same := p.sent && n.Revision == p.last.Revision && (n.Err == nil) == (p.last.Err == nil)
	if same && len(waiters) == 0 {
		return
	}
	p.last, p.sent = n, true
	n.Done = ruleset.Answer(waiters, n.Revision)
	select {
	case p.updates <- n:
	case <-p.ctx.Done():
		n.Done(context.Cause(p.ctx))
	}
}

// wait returns the time until the next poll.
func (p *poller) wait() time.Duration {
	wait, slowest := p.interval, max(maxRetry, p.interval)
	if p.failures > 0 {
		wait = min(firstRetry<<min(p.failures-1, 20), slowest)
	}
	return max(wait*3/4+rand.N(wait/2), min(p.retryAfter, slowest))
}

// fetch polls once. The update is the content of the URL, with or without mistakes; the error means
// that there is none.
func (p *poller) fetch(conditional bool) (n ruleset.Update, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, p.timeout)
	defer cancel()
	request, err := p.request(ctx, conditional)
	if err != nil {
		return n, err
	}
	response, err := p.client.Do(request)
	if err != nil {
		var wrapped *url.Error // it shows the query
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return n, p.late(ctx, err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotModified &&
		request.Header.Get("If-None-Match")+request.Header.Get("If-Modified-Since") != "":
		return p.content, nil
	case response.StatusCode != http.StatusOK:
		p.retryAfter = retryAfter(response.Header.Get("Retry-After"))
		return n, fmt.Errorf("the server answers %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, rules.MaxFile+1))
	if err != nil {
		return n, p.late(ctx, fmt.Errorf("the answer breaks off: %w", err))
	}
	p.remember(response.Header)
	return p.parse(body), nil
}

// late replaces an error by a timeout if the time was over.
func (p *poller) late(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v: %w", p.timeout, context.DeadlineExceeded)
	}
	return err
}

func (p *poller) request(ctx context.Context, conditional bool) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/yaml, text/yaml;q=0.9, */*;q=0.5")
	request.Header.Set("User-Agent", "weir")
	if p.tokenFile != "" {
		token, err := readToken(p.tokenFile)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if conditional && p.etag != "" {
		request.Header.Set("If-None-Match", p.etag)
	}
	if conditional && p.modified != "" {
		request.Header.Set("If-Modified-Since", p.modified)
	}
	return request, nil
}

// parse makes an update of a body, unless it is unchanged.
func (p *poller) parse(body []byte) ruleset.Update {
	sum := sha256.Sum256(body)
	revision := hex.EncodeToString(sum[:12])
	if revision == p.content.Revision {
		return p.content
	}
	file, err := rules.Parse(p.name, body)
	return ruleset.Update{File: file, Err: err, Revision: revision}
}

// remember keeps the validators for the next request. A Last-Modified is of use only if it is at
// least a second older than the response: within its second, the file can have changed again (RFC
// 9110, section 8.8.2.2).
func (p *poller) remember(h http.Header) {
	p.etag, p.modified = "", ""
	if etag := h.Get("ETag"); len(etag) <= bounds.Text && printable(etag) {
		p.etag = etag
	}
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	date, dateErr := http.ParseTime(h.Get("Date"))
	if err == nil && dateErr == nil && date.Sub(modified) >= time.Second {
		p.modified = modified.UTC().Format(http.TimeFormat)
	}
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
}

// retryAfter reads seconds or a date; 0 for none, or a malformed one.
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
