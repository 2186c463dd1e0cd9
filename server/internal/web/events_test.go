package web_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/server/internal/web"
)

// streamed serves a stream until it ends.
func streamed(t *testing.T, s *web.Streams, method string, watch web.Watch) string {
	t.Helper()
	out := httptest.NewRecorder()
	if err := s.Serve(out, httptest.NewRequest(method, "/live", nil).WithContext(t.Context()), watch); err != nil {
		t.Fatal(err)
	}
	if out.Header().Get("Content-Type") != "text/event-stream" || !out.Flushed {
		t.Errorf("%v, flushed: %v", out.Header(), out.Flushed)
	}
	return out.Body.String()
}

// TestStreamIsBounded: in a second it has 50 values and the number of the others; a quiet one is kept open; it ends
// after ten minutes, and ends its watcher.
func TestStreamIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, ended := time.Now(), false
		text := streamed(t, new(web.Streams), "GET", func(ctx context.Context, each func(any) error) error {
			for i := range 200 {
				if err := each(i); err != nil {
					return err
				}
				synctest.Wait()
			}
			<-ctx.Done()
			ended = true
			return each(0)
		})
		if n := strings.Count(text, "event: sample\ndata: "); n != 50 {
			t.Errorf("%d samples", n)
		}
		if !strings.Contains(text, "event: state\ndata: {\"shown\":50,\"dropped\":150}\n\n") ||
			!strings.HasSuffix(text, "event: end\ndata: {}\n\n") {
			t.Errorf("%s", text)
		}
		if n := strings.Count(text, ": alive\n\n"); n < 39 || n > 40 { // of 600 seconds, each 15
			t.Errorf("%d signs of life", n)
		}
		if time.Since(began) != 10*time.Minute || !ended {
			t.Errorf("it took %v, the watcher has ended: %v", time.Since(began), ended)
		}
	})
}

// TestStreamEndsWithTheServer and with its watcher; HEAD has no events.
func TestStreamEndsWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopping := make(chan struct{})
		s := &web.Streams{Stopping: stopping}
		time.AfterFunc(time.Minute, func() { close(stopping) })
		began := time.Now()
		forever := func(ctx context.Context, _ func(any) error) error {
			<-ctx.Done()
			return ctx.Err()
		}
		if text := streamed(t, s, "GET", forever); !strings.HasSuffix(text, "event: end\ndata: {}\n\n") ||
			time.Since(began) != time.Minute {
			t.Errorf("%q after %v", text, time.Since(began))
		}
		broken := func(context.Context, func(any) error) error { return errors.New("it has ended") }
		if text := streamed(t, new(web.Streams), "GET", broken); !strings.Contains(text, "event: end") {
			t.Errorf("%q", text)
		}
		if text := streamed(t, s, http.MethodHead, forever); strings.Contains(text, "event") {
			t.Errorf("HEAD has %q", text)
		}
	})
}

// A lost client is one whose connection is gone.
type lost struct{ *httptest.ResponseRecorder }

func (lost) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestStreamEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := new(web.Streams).Serve(lost{httptest.NewRecorder()}, httptest.NewRequest("GET", "/live", nil),
			func(ctx context.Context, each func(any) error) error {
				<-ctx.Done()
				return ctx.Err()
			})
		if err != nil {
			t.Error(err)
		}
	})
}
