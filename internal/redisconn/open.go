//go:build !small

package redisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/internal/respguard"
)

// quietest is the least time that a connection may be silent, however short the
// timeout: queries for the topology use it too.
const quietest = 100 * time.Millisecond

// Open connects to the Redis that a URL names: see redisstore.Open.
func Open(ctx context.Context, url string, config Config) (Conn, error) {
	c, err := openConn(ctx, url, config, respguard.Decisions)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func openConn(ctx context.Context, url string, config Config, most respguard.Ceilings) (*rueidisConn, error) {
	if config.Timeout == 0 {
		config.Timeout = DefaultTimeout
	}
	if config.Warn == nil {
		config.Warn = func(string) {}
	}
	t, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	secure, err := t.tlsConfig(config.TLS)
	if err != nil {
		return nil, err
	}
	c := &rueidisConn{
		dialer: &dialer{
			network: t.network, tls: secure, attempts: make(map[string]*attempt),
			silence: max(config.Timeout, quietest), timeout: config.Timeout, most: most,
		},
		timeout: config.Timeout,
		shape:   t.shape,
		cluster: t.shape == cluster,
		loads:   loads{underway: make(map[loading]*loaded)},
		valve:   valve{gap: config.Timeout / 4, born: time.Now()},
	}
	c.options = t.options(c.dialer)
	if err := c.connect(ctx); err != nil {
		c.dialer.close()
		return nil, unlocked(c.explain(ctx, err))
	}
	if err := c.Inspect(ctx, config.Warn); err != nil {
		c.Close()
		return nil, err
	}
	c.dialer.opened.Store(true)
	return c, nil
}

// unlocked explains the error of a URL without a password.
func unlocked(err error) error {
	var answer *ServerError
	if errors.As(err, &answer) && strings.HasPrefix(answer.Text, "NOAUTH") {
		return fmt.Errorf("the server wants a password: redis://:password@host, or redis://user:password@host "+
			"(of Sentinels sentinel_password): %w", err)
	}
	return err
}

// tlsConfig is the caller's configuration with the URL's parameters; nil without TLS.
func (t *target) tlsConfig(given *tls.Config) (*tls.Config, error) {
	if !t.secure {
		if given != nil {
			allowed := "rediss://, rediss+cluster:// or rediss+sentinel:// with WithTLS"
			return nil, badURL("scheme", "without TLS", allowed)
		}
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if given != nil {
		config = given.Clone()
	}
	if t.serverName != "" {
		config.ServerName = t.serverName
	}
	if t.ca != "" {
		text, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("redisstore: read ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, badURL("parameter ca", t.ca, "a file with at least one PEM certificate")
		}
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("redisstore: read cert and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if t.anyName != "" {
		verifyAnyName(config)
	}
	return config, nil
}

// verifyAnyName verifies the server's certificate, but for its name.
func verifyAnyName(config *tls.Config) {
	config.InsecureSkipVerify = true // VerifyConnection does the rest
	config.VerifyConnection = func(state tls.ConnectionState) error {
		o := x509.VerifyOptions{Roots: config.RootCAs, Intermediates: x509.NewCertPool()}
		for _, cert := range state.PeerCertificates[1:] {
			o.Intermediates.AddCert(cert)
		}
		_, err := state.PeerCertificates[0].Verify(o)
		return err
	}
}

func (t *target) options(d *dialer) rueidis.ClientOption {
	// With a keep-alive rueidis sends PING over idle connections, each second.
	alive := net.Dialer{Timeout: dialTimeout, KeepAlive: time.Second}
	return rueidis.ClientOption{
		InitAddress: t.addrs, Username: t.user, Password: t.password, SelectDB: t.db,
		ClientName: "weir",
		DialCtxFn:  d.dial, TLSConfig: d.tls, Dialer: alive,
		// It ends a call that is alone on its connection, whatever its context says.
		ConnWriteTimeout: max(2*time.Second, d.timeout),

		DisableRetry: true, // a retry could charge twice
		DisableCache: true,

		// One connection a node: two are no faster, and one carries more than a server can
		// decide. Its queue has room for 2,048 calls; with the buffers that is 0.9 MB.
		PipelineMultiplex: -1, RingScaleEachConn: 11,
		ReadBufferEachConn: 64 << 10, WriteBufferEachConn: 64 << 10,

		ForceSingleClient: t.shape == single,
		ClusterOption:     rueidis.ClusterOption{MaxMovedRedirections: 8},
		Sentinel: rueidis.SentinelOption{
			MasterSet: t.master, Username: t.sentinelUser, Password: t.sentinelPassword, ClientName: "weir",
			TLSConfig: d.tls, Dialer: alive,
			// A missed message would bind it to the old master for good.
			TopologyRefreshInterval: 2 * time.Second,
		},
	}
}

// connect makes the client, or gives up when ctx ends: rueidis itself takes no context.
func (c *rueidisConn) connect(ctx context.Context) error {
	made := make(chan error, 1)
	go func() {
		client, err := rueidis.NewClient(c.options)
		if err != nil && client != nil {
			client.Close()
		}
		c.live.Store(&library{client})
		made <- err
	}()
	select {
	case err := <-made:
		return err
	case <-ctx.Done():
		go func() {
			if <-made == nil {
				c.live.Load().end()
			}
		}()
		return ctx.Err()
	}
}

// Inspect checks each node's version, mode and eviction policy. It fails if no node answers or if one cannot be used.
func (c *rueidisConn) Inspect(ctx context.Context, warn func(string)) error {
	failure, library := rueidis.ErrNoAddr, c.live.Load()
	if library == nil { // it is replaced
		return failure
	}
	for addr, node := range library.Nodes() {
		err := inspect(ctx, addr, node, c.shape, warn)
		var unfit *unfitError
		if errors.As(err, &unfit) {
			return err
		}
		if err == nil || failure != nil {
			failure = err // a replica may be gone: one node is enough
		}
	}
	if failure != nil {
		return c.explain(ctx, failure)
	}
	return nil
}

// inspect uses HELLO, which every user may call.
func inspect(ctx context.Context, addr string, node rueidis.Client, shape topology, warn func(string)) error {
	if shape == cluster { // one that is frozen must not hold up the others
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
	}
	hello, err := node.Do(ctx, node.B().Arbitrary("HELLO").Build()).AsStrMap()
	if err != nil {
		return err
	}
	if problem := unfit(hello, shape); problem != "" {
		return &unfitError{addr, problem}
	}
	if shape != cluster && hello["role"] != "master" {
		warn("redisstore: " + addr + " is a replica, which cannot charge: open its master")
	}
	memory, _ := node.Do(ctx, node.B().Info().Section("memory").Build()).ToString() // it may be forbidden
	policy := field(memory, "maxmemory_policy")
	if field(memory, "maxmemory") != "0" && forgets(policy) {
		warn("redisstore: " + addr + " has maxmemory-policy " + policy +
			": when memory is short it forgets exhausted limits, and what should be refused is granted; " +
			"set volatile-ttl or noeviction")
	}
	return nil
}

// unfitError is the error of a server that answers but cannot be used.
type unfitError struct{ addr, problem string }

func (e *unfitError) Error() string { return "redisstore: " + e.addr + " " + e.problem }

// unfit is why a server, by its answer to HELLO, cannot be used under the URL's scheme, or "".
func unfit(hello map[string]string, shape topology) string {
	major, rest, _ := strings.Cut(hello["version"], ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, errX := strconv.Atoi(major)
	y, errY := strconv.Atoi(minor)
	switch mode := hello["mode"]; {
	case errX != nil || errY != nil || x < 6 || x == 6 && y < 2:
		return "is version " + strconv.Quote(hello["version"]) + "; weir needs Redis 6.2 or later, or Valkey"
	case mode == "sentinel":
		return "is a Sentinel: open redis+sentinel://host1,host2,host3/mymaster"
	case mode == "cluster" && shape != cluster:
		return "is a node of a Cluster: open redis+cluster://host1,host2,host3"
	case mode != "cluster" && shape == cluster:
		return "is no node of a Cluster: open redis://host"
	}
	return ""
}

// field is a field of INFO's text.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// forgets reports whether an eviction policy may drop the key of an exhausted limit.
// volatile-ttl drops what expires first, and the debt is the time to live.
func forgets(policy string) bool {
	return policy != "" && policy != "noeviction" && policy != "volatile-ttl"
}
