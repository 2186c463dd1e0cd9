package ruleimport_test

import (
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/tools/ruleimport/importtest"
)

// TestNginxRefusesTheSameConnections starts and ends requests one after the other, so that their order is known, and
// holds them in the service behind nginx meanwhile.
func TestNginxRefusesTheSameConnections(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"by client": `limit_conn_zone $binary_remote_addr zone=z:1m;
			server { LISTEN; location / { limit_conn z 3; proxy_pass http://UPSTREAM; } }`,
		"by client and server": `limit_conn_zone $binary_remote_addr zone=z:1m; limit_conn_zone $server_name zone=all:1m;
			limit_conn all 7; limit_conn z 3; limit_conn_status 429;
			server { LISTEN; server_name a; location / { proxy_pass http://UPSTREAM; } }`,
		"by header": `limit_conn_zone $http_x_user zone=z:1m;
			server { LISTEN; location / { proxy_pass http://UPSTREAM; }
			location /api/ { limit_conn z 1; proxy_pass http://UPSTREAM; } }`,
	} {
		t.Run(name, func(t *testing.T) { compareConnections(t, config) })
	}
}

// A heldService holds requests until they are released.
type heldService struct {
	arrived chan int
	release [proofRequests]chan struct{}
}

func (h *heldService) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.Header.Get("X-Id"))
	if err != nil {
		panic(err)
	}
	h.arrived <- id
	<-h.release[id]
}

func compareConnections(t *testing.T, config string) {
	dir, err := os.MkdirTemp("", "n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	text := nginxFile(dir, config)
	if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "u"))
	if err != nil {
		t.Fatal(err)
	}
	service := &heldService{arrived: make(chan int)}
	for i := range service.release {
		service.release[i] = make(chan struct{})
	}
	server := &http.Server{Handler: service}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })

	yaml := importedNginx(t, dir, text)
	n, rules := startNginx(t, dir), importtest.NewReplay(t, yaml)
	random := rand.New(rand.NewPCG(3, 4))
	type answer struct {
		id, status int
		err        error
	}
	answers := make(chan answer)
	receipts := make(map[int]gate.Receipt)
	var held []int
	end := func(i int) {
		id := held[i]
		held = append(held[:i], held[i+1:]...)
		close(service.release[id])
		if a := <-answers; a.id != id || a.status != http.StatusOK {
			t.Fatalf("request %d ended with %+v", id, a)
		}
		if err := rules.Gate.Release(t.Context(), receipts[id]); err != nil {
			t.Fatal(err)
		}
	}
	refused := 0
	for id := range proofRequests {
		for len(held) > 0 && (random.IntN(2) == 0 || len(held) > 20) {
			end(random.IntN(len(held)))
		}
		s := randomRequest(random)
		go func() {
			status, err := n.send(id, &s)
			answers <- answer{id, status, err}
		}()
		v := rules.Decide(t, 1_700_000_000_000_000, s.asked())
		select {
		case <-service.arrived:
			held = append(held, id)
			receipts[id] = v.Receipt()
			if v.Outcome != gate.Passed {
				t.Fatalf("request %d, %+v: nginx passes it, the rules do not\n%s", id, s, yaml)
			}
		case a := <-answers:
			refused++
			if a.err != nil || v.Outcome != gate.Refused || v.Rule.Response().Status != a.status {
				t.Fatalf("request %d, %+v: nginx answers %+v, the rules %v\n%s", id, s, a, v.Outcome, yaml)
			}
		case <-time.After(time.Minute):
			t.Fatalf("request %d has no answer", id)
		}
	}
	for len(held) > 0 {
		end(0)
	}
	for _, l := range n.end(t, proofRequests) {
		if rejected := l.conn == "REJECTED"; rejected != (l.status != http.StatusOK) {
			t.Fatalf("nginx says %+v", l)
		}
	}
	if refused < 50 {
		t.Errorf("nginx refused only %d requests", refused)
	}
}
