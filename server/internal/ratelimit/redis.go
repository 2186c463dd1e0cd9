package ratelimit

import (
	"net/url"
	"strings"
)

// redis makes the URL of the store. Errors do not repeat values that may hold a password.
func (r *reader) redis() {
	given := strings.TrimSpace(r.values["REDIS_URL"]) // a file of a secret often ends with a new line
	if given == "" {
		if r.given["WEIR_STORE"] == "" {
			r.wrong("REDIS_URL", "host:port, a path with REDIS_SOCKET_TYPE=unix, MASTER,host:port with "+
				"REDIS_TYPE=SENTINEL, or host:port,host:port with REDIS_TYPE=CLUSTER; WEIR_STORE=memory counts in "+
				"this process alone")
		}
		return
	}
	if (r.values["REDIS_TLS_CLIENT_CERT"] == "") != (r.values["REDIS_TLS_CLIENT_KEY"] == "") {
		r.wrong("REDIS_TLS_CLIENT_CERT", "with REDIS_TLS_CLIENT_KEY, or neither")
	}
	u := &url.URL{Scheme: "redis", User: credentials(r.values["REDIS_AUTH"])}
	if r.on("REDIS_TLS") {
		u.Scheme = "rediss"
	}
	parts := strings.Split(strings.ReplaceAll(given, ", ", ","), ",")
	switch r.values["REDIS_TYPE"] {
	case "sentinel":
		if len(parts) < 2 || strings.Contains(parts[0], ":") {
			r.wrong("REDIS_URL", "of a Sentinel the master's name first: MASTER,host:port,host:port")
			return
		}
		u.Scheme, u.Path = u.Scheme+"+sentinel", "/"+parts[0]
		parts = parts[1:]
	case "cluster":
		u.Scheme += "+cluster"
	default:
		if r.unix(given, u) {
			return
		}
	}
	r.open(u, parts)
}

// unix sets the store at a Unix socket, if it is at one.
func (r *reader) unix(given string, u *url.URL) bool {
	kind := r.values["REDIS_SOCKET_TYPE"]
	if kind == "tcp" || kind == "" && !strings.HasPrefix(given, "/") {
		return false
	}
	switch {
	case !strings.HasPrefix(given, "/"):
		r.wrong("REDIS_URL", "the absolute path of a socket, where REDIS_SOCKET_TYPE is unix; host:port where it is "+
			"tcp")
	case r.on("REDIS_TLS"):
		r.wrong("REDIS_TLS", "false at a Unix socket")
	default:
		u.Scheme, u.Path = "unix", given
		r.set("store", "REDIS_URL", u.String())
	}
	return true
}

// open sets the store at addresses, which may be URLs such as redis://user:password@host:6379/2.
func (r *reader) open(u *url.URL, parts []string) {
	var hosts []string
	for _, part := range parts {
		scheme, rest, has := strings.Cut(part, "://")
		if has && scheme != "redis" {
			r.wrong("REDIS_URL", "host:port or redis://…; REDIS_TLS=true is TLS")
			return
		}
		if !has {
			rest = part
		}
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			if u.User == nil {
				u.User = userinfo(rest[:at])
			}
			rest = rest[at+1:]
		}
		host, database, _ := strings.Cut(rest, "/")
		if database != "" && !strings.Contains(u.Scheme, "+") {
			u.Path = "/" + database
		}
		hosts = append(hosts, host)
	}
	u.Host = strings.Join(hosts, ",")
	u.RawQuery = r.parameters(strings.HasSuffix(u.Scheme, "+sentinel")).Encode()
	r.set("store", "REDIS_URL", u.String())
}

func (r *reader) parameters(sentinel bool) url.Values {
	q := make(url.Values)
	for name, variable := range map[string]string{"ca": "REDIS_TLS_CACERT", "cert": "REDIS_TLS_CLIENT_CERT",
		"key": "REDIS_TLS_CLIENT_KEY"} {
		if value := r.values[variable]; value != "" {
			q.Set(name, value)
		}
	}
	if r.on("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION") {
		q.Set("any_name", "true")
	}
	if user := credentials(r.values["REDIS_SENTINEL_AUTH"]); user != nil && sentinel {
		password, _ := user.Password()
		q.Set("sentinel_password", password)
		if user.Username() != "" {
			q.Set("sentinel_user", user.Username())
		}
	}
	return q
}

// credentials reads PASSWORD or USER:PASSWORD; nil: none.
func credentials(text string) *url.Userinfo {
	if text == "" {
		return nil
	}
	user, password, ok := strings.Cut(text, ":")
	if !ok {
		user, password = "", text
	}
	return url.UserPassword(user, password)
}

// userinfo reads those of a URL.
func userinfo(text string) *url.Userinfo {
	user, password, _ := strings.Cut(text, ":")
	name, errName := url.PathUnescape(user)
	secret, errSecret := url.PathUnescape(password)
	if errName != nil || errSecret != nil {
		return url.UserPassword(user, password)
	}
	return url.UserPassword(name, secret)
}
