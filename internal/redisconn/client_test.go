package redisconn

import (
	"context"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

func TestOpenClient(t *testing.T) {
	server := redistest.Start(t)
	c, err := OpenClient(t.Context(), server.URL(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	set := Command{Name: "SET", Keys: []string{"k"}, Args: []string{"v"}}
	if err := c.Do(t.Context(), set).Err(); err != nil || server.Do("GET", "k") != "v" {
		t.Error(err)
	}
	c.Close()
	redistest.Await(t, "its connections to end", func() bool { return server.Info("clients")["connected_clients"] == "1" })
	node := redistest.Start(t, "--cluster-enabled", "yes")
	if _, err := OpenClient(t.Context(), node.URL(), Config{}); err == nil || !strings.Contains(err.Error(), "open redis+cluster://") {
		t.Errorf("a node of a Cluster: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := OpenClient(over, server.URL(), Config{}); err == nil {
		t.Error("no error although the context is over")
	}
}
