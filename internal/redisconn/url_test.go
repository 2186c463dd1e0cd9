package redisconn

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/weirproject/weir"
)

func TestParseURL(t *testing.T) {
	tcp := func(t target) target { t.network = "tcp"; return t }
	for url, want := range map[string]target{
		"redis://h":                   tcp(target{addrs: []string{"h:6379"}}),
		"redis://h/":                  tcp(target{addrs: []string{"h:6379"}}),
		"redis://h:1/15":              tcp(target{addrs: []string{"h:1"}, db: 15}),
		"valkey://h:1":                tcp(target{addrs: []string{"h:1"}}),
		"redis://[::1]":               tcp(target{addrs: []string{"[::1]:6379"}}),
		"redis://[::1]:7":             tcp(target{addrs: []string{"[::1]:7"}}),
		"redis://ann:pw@h":            tcp(target{addrs: []string{"h:6379"}, user: "ann", password: "pw"}),
		"redis://:pw@h":               tcp(target{addrs: []string{"h:6379"}, password: "pw"}),
		"redis://a%3An:p%40%2F%25w@h": tcp(target{addrs: []string{"h:6379"}, user: "a:n", password: "p@/%w"}),
		"redis://ann:p@w:#d@h":        tcp(target{addrs: []string{"h:6379"}, user: "ann", password: "p@w:#d"}),

		"rediss://h?server_name=n&ca=/c%20a&cert=c&key=k": tcp(target{addrs: []string{"h:6379"}, secure: true,
			serverName: "n", ca: "/c a", cert: "c", key: "k"}),

		"unix:///run/r.sock":                {network: "unix", addrs: []string{"/run/r.sock"}},
		"unix://ann:pw@/run/r%3F.sock?db=3": {network: "unix", addrs: []string{"/run/r?.sock"}, user: "ann", password: "pw", db: 3},

		"redis+cluster://a,b:2,[::1]/0": tcp(target{shape: cluster, addrs: []string{"a:6379", "b:2", "[::1]:6379"}}),
		"rediss+cluster://u:p@a?ca=c":   tcp(target{shape: cluster, secure: true, addrs: []string{"a:6379"}, user: "u", password: "p", ca: "c"}),

		"redis+sentinel://a,b:2/my%20m": tcp(target{shape: sentinel, addrs: []string{"a:26379", "b:2"}, master: "my m"}),
		"valkeys+sentinel://u:p@a/m/4?sentinel_user=su&sentinel_password=s%40p": tcp(target{shape: sentinel, secure: true,
			addrs: []string{"a:26379"}, master: "m", db: 4, user: "u", password: "p", sentinelUser: "su", sentinelPassword: "s@p"}),
	} {
		got, err := parseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
		} else if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", url, *got, want)
		}
	}
}

// TestParseURLErrors has a password, PASS, in every URL where one could stand, also in
// those that forget to encode it: it may never be told.
func TestParseURLErrors(t *testing.T) {
	for url, want := range map[string]string{
		"":                              "scheme",
		"localhost:6379":                "scheme",
		"u:PASS@localhost:6379":         "scheme",
		"http://u:PASS@h":               `scheme is "http"`,
		"redis+ring://u:PASS@h":         `scheme is "redis+ring"`,
		"unix+cluster:///s":             `scheme is "unix+cluster"`,
		"redis+://h":                    `scheme is "redis+"`,
		"redis://":                      "address",
		"redis://:6379":                 "address",
		"redis://:PASS@":                "address",
		"redis://u:PASS@h:1:2":          "address",
		"redis://u:PASS@h:x":            "address",
		"redis://u:PASS@h:65536":        "address",
		"redis://u:PASS@::1":            "address",
		"redis://u:PASS@h:,i":           "address",
		"redis://u:PASS@h,i":            "address is 2",
		"redis+cluster://u:PASS@h,,i":   "number 2",
		"redis://u:%PASS@h":             "user or password",
		"redis://u:PA/SS@h":             "%2F",
		"redis://u:PA?SS=1@h":           "%2F",
		"redis://u:PASS@h/PASS@i":       "%2F",
		"redis://PASS/h":                "database",
		"redis://:PASS":                 "address",
		"redis://u:PASS@h/x":            "database",
		"redis://u:PASS@h/-1":           "database",
		"redis://u:PASS@h/1/2":          "database",
		"redis+cluster://u:PASS@h/1":    "database is 1",
		"redis+sentinel://u:PASS@h":     "master",
		"redis+sentinel://u:PASS@h/":    "master",
		"redis+sentinel://u:PASS@h/m/x": "database",
		"unix://u:PASS@h/run/s":         "path",
		"unix://u:PASS@":                "path",
		"unix:///s?db=x":                "database",
		"unix:///s?db=1&db=2":           `parameter is "db"; allowed: each once: db`,
		"redis://u:PASS@h?db=1":         `parameter is "db"; allowed: none; rediss:// takes`,
		"redis://u:PASS@h?ca=x":         `parameter is "ca"; allowed: none; rediss:// takes`,
		"rediss://u:PASS@h?timeout=1s":  `parameter is "timeout"; allowed: each once: any_name, ca, cert, key, server_name`,
		"rediss://u:PASS@h?ca=x&ca=y":   `parameter is "ca"`,
		"rediss://u:PASS@h?cert=x":      "cert and key",
		"rediss://u:PASS@h?ca=%zz":      "parameters",
		"redis+sentinel://h/m?ca=x":     "each once: sentinel_password, sentinel_user",
		"redis+sentinel://h/m?sentinel_password=PASS&sentinel_password=PASS": `parameter is "sentinel_password"`,
	} {
		_, err := parseURL(url)
		var input *weir.InputError
		switch {
		case !errors.As(err, &input):
			t.Errorf("%s: %v, want an InputError", url, err)
		case !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %s", url, err, want)
		case strings.Contains(err.Error(), "PASS") || strings.Contains(err.Error(), `"SS"`):
			t.Errorf("%s: the error tells the password: %v", url, err)
		}
	}
}
