package ruleimport_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/tools/ruleimport"
)

const zoned = "limit_req_zone $binary_remote_addr zone=z:1m rate=5r/s;\n"

func TestNginxListsWhatHasNoEqual(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		zoned + "server { limit_req zone=other; limit_req zone=z; }": `source:2: limit_req of zone "other", which is not defined`,
		zoned: `source:1: zone z, which no limit uses`,
		zoned + "limit_req zone=z; server { limit_rate 10k; }":                                          `source:2: limit_rate`,
		zoned + "limit_req zone=z; limit_req_log_level info;":                                           `source:2: limit_req_log_level`,
		zoned + "limit_req zone=z; server { location ~ (?<=a)b {} }":                                    `source:2: location (?<=a)b`,
		zoned + "limit_req zone=z; server { location /a { location ~ b {} } }":                          `source:2: location ~ b within /a`,
		zoned + "server { limit_req zone=z; if ($x) { return 403; } }":                                  `source:2: if ($x)`,
		zoned + "server { limit_req zone=z; rewrite ^/a https://b/; }":                                  `source:2: rewrite ^/a https://b/`,
		zoned + "server { rewrite ^/a /b break;\nlocation /b { limit_req zone=z; } }":                   `source:2: rewrite ^/a /b break`,
		zoned + "server { location /a { rewrite ^ /b last; }\nlocation /b { limit_req zone=z; } }":      `source:2: rewrite ^ /b last`,
		zoned + "server { if ($bad) { return 444; }\nlocation /b { limit_req zone=z; } }":               `source:2: if ($bad)`,
		zoned + "server { location / { error_page 404 = @app; }\nlocation @app { limit_req zone=z; } }": `source:2: error_page 404 = @app: only requests`,
		zoned + "server { index index.php;\nlocation ~ .php$ { limit_req zone=z; } }":                   `source:2: index index.php`,
		zoned + "server { location / { try_files $uri /$a.php; }\nlocation /b { limit_req zone=z; } }":  `which depends on the request`,
		zoned + "server { location / { try_files $uri @app; }\nlocation @app { limit_req zone=z; } }":   `source:2: try_files: files cannot`,
		zoned + "server { limit_req zone=z; }\nserver { limit_req zone=z; }":                            `source:3: a server without a name`,
		zoned + "server { limit_req zone=z; listen 1; } server { listen 2; }":                           `source:2: servers of several ports`,
		zoned + "server { server_name ~a; limit_req zone=z; }":                                          `source:2: server_name ~a`,
		zoned + "server { limit_req zone=z;\nlocation /a { limit_req zone=z burst=3; } }":               `source:3: zone z is counted here apart`,
		zoned + "limit_req zone=z; server {\nlocation /a { limit_req_status 444; } }":                   `source:3: status 444 here, of zone z with 503`,
		zoned + "limit_req zone=z; include missing.conf;":                                               `source:2: include missing.conf`,
		zoned + "limit_req zone=z; set_real_ip_from unix:;":                                             `source:2: set_real_ip_from`,
		zoned + "limit_req zone=z; set_real_ip_from 10.0.0.1; real_ip_header X-Other;":                  `source:2: real_ip_header X-Other`,
		zoned + "limit_req zone=z; server { set_real_ip_from 10.0.0.1; }":                               `source:2: set_real_ip_from in server`,
		"limit_req_zone $uri zone=z:1m rate=1r/s; limit_req zone=z;":                                    `source:1: key $uri: paths are counted`,
		"limit_req_zone $geoip_country zone=z:1m rate=1r/s; limit_req zone=z;":                          `source:1: key $geoip_country`,
		"limit_req_zone $http_a$http_b zone=z:1m rate=1r/s; limit_req zone=z;":                          `are counted together`,
		"map $http_a $k { ~x y; } limit_req_zone $k zone=z:1m rate=1r/s; limit_req zone=z;":             `source:1: key $k`,
		"limit_conn_zone $host zone=c:1m;" + zoned + "limit_conn c 1; limit_req zone=z;":                `limit_req also counts`,
		"http {} stream { limit_conn c 1; }":                                                            `source:1: limit_conn in stream`,
	} {
		result, _ := imported(t, "nginx", source)
		var notes []string
		for i := range result.Notes {
			notes = append(notes, result.Notes[i].String())
		}
		if !strings.Contains(strings.Join(notes, "\n"), want) {
			t.Errorf("%s\nlists %q, want %s", source, notes, want)
		}
		if strings.Contains(source, "@app") && strings.Contains(strings.Join(notes, "\n"), "no limit uses") {
			t.Errorf("%s\nlists %q: a redirect leads to the zone", source, notes)
		}
	}
}

func TestNginxMistakesNameTheirLine(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"server {\n": `source:2:1: the file ends within a block`,
		"a b":        `source:1:1: directive "a" does not end`,
		"\n}":        `source:2:1: unexpected '}'`,
		"a \"b":      `the file ends within quotes`,
		"limit_req_zone $host zone=z:1m rate=0r/s;":     `rate is "0r/s"; allowed: a whole number from 1`,
		"limit_req_zone $host zone=z:1m;":               `limit_req_zone needs a key`,
		"limit_req_zone $host zone=z:1m rate=1r/s x=1;": `limit_req_zone has "x=1"; allowed: a key, zone`,
		zoned + zoned:                                         `source:2:1: zone "z" is defined twice`,
		zoned + "limit_req zone=z burst=x;":                   `limit_req has "x"; allowed: a whole number from 1`,
		zoned + "limit_req zone=z bust=1;":                    `limit_req has "bust=1"; allowed: zone=NAME`,
		zoned + "limit_conn z 1;":                             `limit_conn needs a zone of limit_conn_zone`,
		zoned + "limit_req zone=z; limit_req_status 200;":     `limit_req_status has "200"`,
		zoned + "server { location ! /a { } }":                `location has ["!" "/a"]`,
		"limit_zone one $binary_remote_addr 10m;":             `limit_zone is of nginx before`,
		strings.Repeat("a {", 100) + strings.Repeat("}", 100): `nested over 64 times`,
	} {
		_, err := ruleimport.Import("nginx", []ruleimport.Text{{Name: "source", Data: []byte(source)}}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", source, err, want)
		}
	}
}

// TestNginxIncludesThatNameThemselves end.
func TestNginxIncludesThatNameThemselves(t *testing.T) {
	t.Parallel()
	text := ruleimport.Text{Name: "source", Data: []byte("include source; include source;")}
	include := func(string, string) ([]ruleimport.Text, error) { return []ruleimport.Text{text}, nil }
	_, err := ruleimport.Import("nginx", []ruleimport.Text{text}, include)
	if err == nil || !strings.Contains(err.Error(), "nested over 64 times") {
		t.Error(err)
	}
}
