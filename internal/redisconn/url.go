package redisconn

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir"
)

// target is a parsed URL. No error may quote the part before the last @: it holds the password.
type target struct {
	shape    topology
	secure   bool
	network  string // "tcp" or "unix"
	addrs    []string
	user     string
	password string
	db       int
	master   string // Sentinel's name for it

	sentinelUser, sentinelPassword string
	ca, cert, key, serverName      string
	anyName                        string // "true": the certificate may be for any name
}

type topology uint8

const (
	single topology = iota
	cluster
	sentinel
)

const schemes = "redis://, rediss:// (TLS), unix://, redis+cluster://, rediss+cluster://, " +
	"redis+sentinel://, rediss+sentinel:// (valkey for redis is the same)"

func badURL(part string, given any, allowed string) error {
	return &weir.InputError{Field: "URL " + part, Given: given, Allowed: allowed}
}

// CheckURL returns the error of a URL that Open does not take.
func CheckURL(url string) error {
	_, err := parseURL(url)
	return err
}

// parseURL does not use url.Parse: that refuses several addresses, and quotes the whole
// URL, with the password, in its errors.
func parseURL(text string) (*target, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return nil, badURL("scheme", "none", schemes)
	}
	t := &target{network: "tcp"}
	if err := t.setScheme(scheme); err != nil {
		return nil, err
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(path+query, "@") {
		return nil, badURL("password", "cut short", "/ ? and @ written as %2F %3F %40")
	}
	if err := t.setCredentials(&authority); err != nil {
		return nil, err
	}
	if err := t.setPlace(authority, path); err != nil {
		return nil, err
	}
	if err := t.setParameters(query); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *target) setScheme(scheme string) error {
	base, mode, _ := strings.Cut(scheme, "+")
	switch base {
	case "redis", "valkey":
	case "rediss", "valkeys":
		t.secure = true
	case "unix":
		t.network = "unix"
	default:
		return badURL("scheme", scheme, schemes)
	}
	switch {
	case scheme == base:
	case mode == "cluster" && t.network == "tcp":
		t.shape = cluster
	case mode == "sentinel" && t.network == "tcp":
		t.shape = sentinel
	default:
		return badURL("scheme", scheme, schemes)
	}
	return nil
}

// setCredentials takes user:password@ off the authority.
func (t *target) setCredentials(authority *string) error {
	at := strings.LastIndexByte(*authority, '@')
	if at < 0 {
		return nil
	}
	user, password, _ := strings.Cut((*authority)[:at], ":")
	*authority = (*authority)[at+1:]
	var errUser, errPassword error
	t.user, errUser = url.PathUnescape(user)
	t.password, errPassword = url.PathUnescape(password)
	if errUser != nil || errPassword != nil {
		return badURL("user or password", "not percent-encoded", "user:password with % written as %25")
	}
	return nil
}

// setPlace reads the addresses and the path behind them.
func (t *target) setPlace(authority, path string) error {
	if t.network == "unix" {
		if authority != "" || path == "" {
			return badURL("path", "none", "unix:///path/to/redis.sock, after user:password@ if there are any")
		}
		socket, err := url.PathUnescape("/" + path)
		if err != nil {
			return badURL("path", "not percent-encoded", "% written as %25")
		}
		t.addrs = []string{socket}
		return nil
	}
	if err := t.setAddrs(authority); err != nil {
		return err
	}
	if t.shape == sentinel {
		var ok bool
		var err error
		t.master, path, ok = strings.Cut(path, "/")
		if t.master, err = url.PathUnescape(t.master); t.master == "" || err != nil {
			const allowed = "the Sentinels' name for the master: redis+sentinel://host1,host2,host3/mymaster"
			return badURL("master", "none", allowed)
		}
		if !ok {
			return nil
		}
	}
	return t.setDatabase(path)
}

// setAddrs names an address that it refuses by its place only: it may be half a password.
func (t *target) setAddrs(authority string) error {
	for i, addr := range strings.Split(authority, ",") {
		host, port, err := splitAddr(addr, t.shape)
		if err != nil {
			return badURL("address", "not understood, number "+strconv.Itoa(i+1), "host, host:port or [IPv6]:port")
		}
		t.addrs = append(t.addrs, net.JoinHostPort(host, port))
	}
	if t.shape == single && len(t.addrs) > 1 {
		return badURL("address", len(t.addrs), "one; several with redis+cluster:// or redis+sentinel://")
	}
	return nil
}

func splitAddr(addr string, shape topology) (host, port string, err error) {
	if !strings.Contains(addr, ":") || strings.HasSuffix(addr, "]") {
		addr += map[topology]string{single: ":6379", cluster: ":6379", sentinel: ":26379"}[shape]
	}
	host, port, err = net.SplitHostPort(addr)
	if err == nil && host == "" {
		err = strconv.ErrSyntax
	}
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return host, port, err
}

func (t *target) setDatabase(text string) error {
	if text == "" {
		return nil
	}
	db, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return badURL("database", "not a number", "a number from 0, as in redis://host:6379/2")
	}
	if t.shape == cluster && db != 0 {
		return badURL("database", db, "0 in a Cluster")
	}
	t.db = int(db)
	return nil
}

// parameters are the parameters that the URL's scheme allows, and their fields.
func (t *target) parameters() map[string]*string {
	p := make(map[string]*string)
	if t.secure {
		p["ca"], p["cert"], p["key"], p["server_name"] = &t.ca, &t.cert, &t.key, &t.serverName
		p["any_name"] = &t.anyName
	}
	if t.shape == sentinel {
		p["sentinel_user"], p["sentinel_password"] = &t.sentinelUser, &t.sentinelPassword
	}
	return p
}

func (t *target) setParameters(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return badURL("parameters", "not percent-encoded", "name=value&name=value with % written as %25")
	}
	if t.network == "unix" && len(values["db"]) == 1 {
		if err := t.setDatabase(values.Get("db")); err != nil {
			return err
		}
		values.Del("db")
	}
	places := t.parameters()
	for name, given := range values {
		place, ok := places[name]
		if !ok || len(given) > 1 {
			return badURL("parameter", name, t.allowed())
		}
		*place = given[0]
	}
	if (t.cert == "") != (t.key == "") {
		return badURL("parameter cert and key", "one of them", "both, or none")
	}
	if t.anyName != "" && t.anyName != "true" {
		return badURL("parameter any_name", t.anyName, "true, or without it")
	}
	return nil
}

func (t *target) allowed() string {
	var names []string
	for name := range t.parameters() {
		names = append(names, name)
	}
	if t.network == "unix" {
		names = append(names, "db")
	}
	if len(names) == 0 {
		return "none; rediss:// takes ca, cert, key, server_name, any_name"
	}
	slices.Sort(names)
	return "each once: " + strings.Join(names, ", ")
}
