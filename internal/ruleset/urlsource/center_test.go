package urlsource

import (
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/ruleset/rulesettest"
)

// A centre is what the stand-ins have in common: a text with a version, and clients that wait for the next one.
type centre struct {
	mu      sync.Mutex
	text    string // "" for none
	version int
	changed chan struct{}
	down    bool
	calls   int
}

func (c *centre) put(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text, c.version = text, c.version+1
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *centre) state() (string, int, chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text, c.version, c.changed
}

// wait ends at a change, or after a time.
func (c *centre) wait(request *http.Request, changed chan struct{}, at most) bool {
	select {
	case <-changed:
		return true
	case <-time.After(time.Duration(at)):
	case <-request.Context().Done():
	}
	return false
}

type most time.Duration

const (
	secretWord = "secret-of-the-center"
	nameWord   = "weir:secret-of-the-center"
)

// consulKV answers as Consul does: an index below the present one is answered at once.
func (c *centre) consulKV(w http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	switch {
	case request.Header.Get("X-Consul-Token") != secretWord:
		w.WriteHeader(http.StatusForbidden)
		return
	case request.URL.Path != "/v1/kv/weir/rules.yaml" || !query.Has("raw") || query.Get("dc") != "east":
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	text, version, changed := c.state()
	index, _ := strconv.Atoi(query.Get("index"))
	if index > 0 && index >= version {
		limit, err := time.ParseDuration(query.Get("wait"))
		if err != nil || limit <= 0 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for end := time.After(limit + limit/16); index >= version; text, version, changed = c.state() {
			select {
			case <-changed:
				continue
			case <-end:
			case <-request.Context().Done():
			}
			break
		}
	}
	w.Header().Set("X-Consul-Index", strconv.Itoa(version))
	if text == "" {
		w.WriteHeader(http.StatusNotFound)
	}
	fmt.Fprint(w, text)
}

// nacosAPI answers as the open API of Nacos 2 does, with tokens that a change of the version makes void.
func (c *centre) nacosAPI(w http.ResponseWriter, request *http.Request) {
	text, version, changed := c.state()
	token := "token-" + strconv.Itoa(version)
	if request.URL.Path == "/nacos/v1/auth/login" {
		if request.PostFormValue("username") != "weir" || request.PostFormValue("password") != secretWord {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `{"accessToken":%q,"tokenTtl":18000,"globalAdmin":false}`, token)
		return
	}
	if request.URL.Query().Get("accessToken") != token {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	sum := md5.Sum([]byte(text))
	switch request.URL.Path {
	case "/nacos/v1/cs/configs":
		query := request.URL.Query()
		if text == "" || query.Get("dataId") != "weir.yaml" || query.Get("group") != "LIMITS" || query.Get("tenant") != "dev" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, text)
	case "/nacos/v1/cs/configs/listener":
		limit, err := strconv.Atoi(request.Header.Get("Long-Pulling-Timeout"))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		known := "weir.yaml\x02LIMITS\x02" + hex.EncodeToString(sum[:]) + "\x02dev\x01"
		if request.PostFormValue("Listening-Configs") != known || c.wait(request, changed, most(limit)*most(time.Millisecond)) {
			fmt.Fprint(w, "weir.yaml%02LIMITS%02dev%01\n")
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// apolloService answers as Apollo's config service with an access key does.
func (c *centre) apolloService(w http.ResponseWriter, request *http.Request) {
	mac := hmac.New(sha1.New, []byte(secretWord))
	fmt.Fprintf(mac, "%s\n%s", request.Header.Get("Timestamp"), request.URL.RequestURI())
	signed := "Apollo shop:" + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	if request.Header.Get("Authorization") != signed {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	text, version, changed := c.state()
	switch request.URL.Path {
	case "/configs/shop/default/weir.yaml":
		if text == "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"appId": "shop", "configurations": map[string]string{"content": text}, "releaseKey": "r"})
	case "/notifications/v2":
		var known []struct {
			NamespaceName  string
			NotificationID int
		}
		if json.Unmarshal([]byte(request.URL.Query().Get("notifications")), &known) != nil || len(known) != 1 || known[0].NamespaceName != "weir.yaml" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if known[0].NotificationID >= version && !c.wait(request, changed, most(time.Minute)) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, version, _ = c.state()
		fmt.Fprintf(w, `[{"namespaceName":"weir.yaml","notificationId":%d,"messages":{"details":{"shop+default+weir.yaml":%d}}}]`, version, version)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// RoundTrip calls a stand-in without a socket, so that its time is that of the bubble.
func (c *centre) RoundTrip(handler http.HandlerFunc, request *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.calls++
	down := c.down
	c.mu.Unlock()
	if down {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	done := make(chan bool)
	go func() { handler(w, request); close(done) }()
	select {
	case <-done:
		return w.Result(), nil
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// centers are the URL, the word of the token file, and the stand-in of each protocol.
var centers = []struct {
	url, word string
	handler   func(*centre) http.HandlerFunc
	missing   string
}{
	{"consul+https://config.example.com/weir/rules.yaml?dc=east", secretWord, func(c *centre) http.HandlerFunc { return c.consulKV },
		"the key does not exist"},
	{"nacos+https://config.example.com/LIMITS/weir.yaml?namespace=dev", nameWord, func(c *centre) http.HandlerFunc { return c.nacosAPI },
		"the configuration does not exist"},
	{"apollo+https://config.example.com/shop/default/weir.yaml", secretWord, func(c *centre) http.HandlerFunc { return c.apolloService },
		"never released"},
}

func followCenter(t *testing.T, address, word string, handler func(*centre) http.HandlerFunc) (*centre, *rulesettest.Followed) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	do(t, os.WriteFile(file, []byte(word), 0o600))
	s, err := New(address, WithTokenFile(file))
	do(t, err)
	c := &centre{text: set("1/1s"), version: 7, changed: make(chan struct{})}
	serve := handler(c)
	s.client.Transport = roundTripper(func(request *http.Request) (*http.Response, error) { return c.RoundTrip(serve, request) })
	return c, rulesettest.Follow(t, s)
}

// everyCenter runs a test beside the stand-in of each protocol.
func everyCenter(t *testing.T, test func(t *testing.T, c *centre, f *rulesettest.Followed, missing string)) {
	for _, each := range centers {
		name, _, _ := strings.Cut(each.url, "+")
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, f := followCenter(t, each.url, each.word, each.handler)
				defer f.End()
				f.Sent("1/1s")
				test(t, c, f, each.missing)
			})
		})
	}
}

func TestCentersAnnounceChanges(t *testing.T) {
	everyCenter(t, func(t *testing.T, c *centre, f *rulesettest.Followed, _ string) {
		for i := range 20 {
			time.Sleep(time.Duration(i*i) * time.Second)
			c.put(set(fmt.Sprintf("%d/1s", i+2)))
			time.Sleep(minGap)
			f.Sent(fmt.Sprintf("%d/1s", i+2))
		}
		c.put(set("30/1s")) // while the center is read, or before it is watched again
		c.put(set("31/1s"))
		time.Sleep(2 * minGap)
		updates := f.Updates()
		if n := len(updates); n == 0 || updates[n-1].File.Rules[0].Limit[0] != "31/1s" {
			t.Errorf("%d updates, and the last is not the last text", n)
		}
	})
}

func TestCentersAreAskedSeldom(t *testing.T) {
	everyCenter(t, func(t *testing.T, c *centre, f *rulesettest.Followed, _ string) {
		time.Sleep(time.Minute)
		c.mu.Lock()
		c.calls = 0
		c.mu.Unlock()
		time.Sleep(time.Hour)
		f.Sent()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.calls < 60 || c.calls > 130 {
			t.Errorf("an hour without a change has %d requests", c.calls)
		}
	})
}

func TestCentersThatAreDownComeBack(t *testing.T) {
	everyCenter(t, func(t *testing.T, c *centre, f *rulesettest.Followed, _ string) {
		c.mu.Lock()
		c.down = true
		c.mu.Unlock()
		c.put(set("2/1s"))
		time.Sleep(10 * time.Minute)
		f.Sent("bad: connection refused")
		c.mu.Lock()
		c.down = false
		c.mu.Unlock()
		time.Sleep(7 * time.Minute)
		f.Sent("2/1s")
		c.put(set("3/1s"))
		time.Sleep(minGap)
		f.Sent("3/1s")
	})
}

func TestRulesThatACenterLostStay(t *testing.T) {
	everyCenter(t, func(t *testing.T, c *centre, f *rulesettest.Followed, missing string) {
		c.put("")
		time.Sleep(2 * time.Minute)
		f.Sent("bad: " + missing)
		c.put(set("2/1s"))
		time.Sleep(7 * time.Minute)
		f.Sent("2/1s")
		c.put("rules: [{name: x, limit: 1/1y}]")
		time.Sleep(minGap)
		f.Sent("bad: limit")
		c.put(set("4/1s"))
		time.Sleep(minGap)
		f.Sent("4/1s")
	})
}

// A Consul that was restored from a snapshot counts from a smaller index.
func TestAnIndexThatGoesBackIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, f := followCenter(t, centers[0].url, centers[0].word, centers[0].handler)
		defer f.End()
		f.Sent("1/1s")
		c.mu.Lock()
		c.version = 2
		c.mu.Unlock()
		c.put(set("2/1s"))
		time.Sleep(longPoll + 5*time.Second)
		f.Sent("2/1s")
		c.put(set("3/1s"))
		time.Sleep(minGap)
		f.Sent("3/1s")
	})
}

// A center without the endpoint of its long poll is polled.
func TestCentersThatCannotBeWatchedArePolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, f := followCenter(t, centers[1].url, centers[1].word, func(c *centre) http.HandlerFunc {
			return func(w http.ResponseWriter, request *http.Request) {
				if strings.HasSuffix(request.URL.Path, "/listener") {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				c.nacosAPI(w, request)
			}
		})
		defer f.End()
		f.Sent("1/1s")
		c.put(set("2/1s"))
		time.Sleep(40 * time.Second)
		f.Sent("2/1s")
	})
}

func TestWrongCredentialsAreNamed(t *testing.T) {
	for _, each := range centers {
		for _, word := range []string{"wrong", "weir:wrong"} {
			synctest.Test(t, func(t *testing.T) {
				_, f := followCenter(t, each.url, word, each.handler)
				defer f.End()
				synctest.Wait()
				updates := f.Updates()
				if len(updates) != 1 || updates[0].Err == nil {
					t.Fatalf("%s: %v", each.url, updates)
				}
				text := updates[0].Err.Error()
				if strings.Contains(text, "wrong") || !strings.Contains(text, "40") && !strings.Contains(text, "name:password") {
					t.Errorf("%s: %s", each.url, text)
				}
			})
		}
	}
}

func TestURLsOfCentersAreChecked(t *testing.T) {
	tests := map[string]string{
		"zookeeper+https://h/a":                "nacos+https",
		"consul+https://h":                     "consul+https://HOST:PORT/KEY",
		"consul+https://h/a?token=x":           "the parameter token",
		"nacos+https://h/weir.yaml":            "GROUP/DATA_ID",
		"nacos+https://h/G/weir.yaml?group=x":  "the parameter group",
		"apollo+https://h/app/weir.yaml":       "APP_ID/CLUSTER/NAMESPACE",
		"etcd+https://h/":                      "etcd+https://HOST:PORT/KEY",
		"nacos+http://nacos:8848/G/weir.yaml":  "server.config.plain_http",
		"nacos+ftp://127.0.0.1/G/weir.yaml":    "https",
		"nacos+https://u:p@nacos/G/weir.yaml":  "without user",
		"apollo+https://h/app//weir.yaml":      "APP_ID/CLUSTER/NAMESPACE",
		"nacos+https://h/G/weir.yaml/and/more": "GROUP/DATA_ID",
	}
	for address, want := range tests {
		if _, err := New(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", address, err, want)
		}
	}
	for _, address := range []string{"nacos+http://127.0.0.1:8848/G/weir.yaml", "etcd+https://h:2379/a/b/c", "consul+https://h/a/b"} {
		if _, err := New(address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := New("nacos+http://nacos:8848/G/weir.yaml", WithPlainHTTP()); err != nil {
		t.Error(err)
	}
}

func FuzzCenters(f *testing.F) {
	f.Add(uint8(0), set("1/1s"), "7")
	f.Add(uint8(1), `{"accessToken":"x"}`, "")
	f.Add(uint8(2), `{"configurations":{"content":"rules: []"}}`, `[{"notificationId":-1}]`)
	f.Add(uint8(3), `{"header":{"revision":"7"},"kvs":[{"value":"cnVsZXM6IFtd"}]}`, `{"result":{"events":[{}]}}`)
	addresses := []string{centers[0].url, centers[1].url, centers[2].url, "etcd+https://config.example.com/weir"}
	f.Fuzz(func(t *testing.T, which uint8, first, second string) {
		s, err := New(addresses[int(which)%len(addresses)])
		do(t, err)
		answers := []string{first, second, first}
		s.client.Transport = roundTripper(func(request *http.Request) (*http.Response, error) {
			if len(answers) == 0 {
				return nil, errors.New("no more")
			}
			w := httptest.NewRecorder()
			w.Header()["X-Consul-Index"] = []string{answers[0]}
			fmt.Fprint(w, answers[0])
			answers = answers[1:]
			return w.Result(), nil
		})
		if n := s.Load(context.Background(), false); n.Err == nil && n.File == nil {
			t.Error("neither rules nor an error")
		}
		_ = s.await(context.Background())
		_ = s.Load(context.Background(), true)
	})
}
