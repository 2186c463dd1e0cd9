package ledger_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/rules"
)

// odd rules have each field of a rule, with values that YAML could misunderstand.
const odd = `rules:
- name: all.fields_1-2
  label: "yes"
  description: "two\nlines: #1"
  labels: {team: "1", "true": "no"}
  enabled: false
  match: {method: [GET, POST], host: "*.example.com", path: "/a/{b}/**", client: [10.0.0.0/8], service: "0123", user: "*", route: "GET /a: b #c",
    header: {X-A: ["1", "true"], X-B: "null"}, query: {q: "~"}, descriptor: {d: ["-"]}, descriptor_keys: [d, "yes"], country: "NO", asn: "7"}
  group: g
  allow: {client.ip: [10.1.0.0/16, 10.2.0.0/16], header.X-A: "0"}
  deny: {user: "no"}
  key: [user, header.X-Api-Key]
  on_missing: skip
  algorithm: sliding_counter
  limit: [100/1m, 1000/1h]
  overrides: [{key: ["1.2.3.4", "*"], limit: 60/1m}, {key: ["1e3", ": "], limit: [70/1m, 71/1h]}]
  cost: {from: header.X-Cost, default: 2, max: 50, settle: bytes}
  charge: full
  mode: enforce
  enforce_percent: 0
  local_ceiling: 1.25
  on_store_error: deny
  response: {status: 420, fields: none, body: "slow down\n{retry_after} s # \"é\"\n", content_type: text/plain}
  message: {zh-CN: "# 否", en: "no: {rule}"}
- name: second
  schedule: [{days: [mon-fri, sun], hours: 09:00-18:00, zone: Asia/Shanghai}, {days: sat}]
  key: user
  limit: 9/1s
  cost: 3
  unit: "1/1000"
  label: "登录 # 不是注释"
  ban: {after: 5 refusals within 1m, for: 10m, then: [1h, 1d], forget: 8d}
  candidate: {limit: 60/1m, algorithm: fixed_window, key: [client.ip v4/24 v6/48, user]}
- {name: third, key: client.ip, limit: 10/1m, lease_percent: 7, message: "~"}
- {name: failures, key: client.ip, limit: fixed_window 10/1m, count_if: {status: ["401", 5xx], header: {X-Login: ["no"]}}}
- {name: matched, limit: 1/1s, match: {country: [CN, "NO"], asn: [64512, "7"], regex: {path: "/a.*", header: {X-A: "b|c"}, descriptor: {d: "e+"}}, any: [{method: GET}, {user: "1"}], not: [{path: /b}]}}
- {name: fourth, limit: concurrency 5 ttl 1m, hold_until: done}
- {name: fifth, key: user, limit: 10/1m, once: {by: header.Idempotency-Key, for: 10m, repeats: 5}}
- {name: sixth, key: user, limit: 10/1m, once: {by: header.X-Id, for: 1h, repeat: refuse}}
- {name: agents, preset: mcp, match: {path: /mcp, mcp: {method: ["tools/call", "no"], tool: "yes"}, regex: {mcp: {method: "t.*", tool: "a|b"}}}, limit: 9/1m, cost: {by: mcp.tool, each: {"no": 3, a b: 1}}, response: {shape: mcp, as: result}}
- {name: sums, match: {json: {a.b: ["1", "no"]}}, limit: 9/1m, cost: {from: json.a, max: 5, on_missing: deny}}
- {name: floors, key: user, limit: 100/1m, reserve: {by: service, classes: {"no": 0%, "1": 50%}, otherwise: "1", match: {"no": [{path: /a, user: "1"}, {header: {X-A: "2"}}]}}}
- {name: shares, limit: fixed_window 100/1m, fair: {by: [user, header.X-Plan], above: 10%, weights: {"no": 3, "1": 2}, weight_by: header.X-Plan, max_keys: 7}}
- {name: learned, key: user, limit: 9/1m, cost: {from: json.a, max: 5, settle: json.b, learn: json.model}}
- {name: streams, preset: openai, match: {path: /v1}, key: user, limit: 900/1m, charge: as_it_streams, stream: {ask_usage: false, count: json.n, step: 5, overrun: cut}}
- {name: seventh, limit: unlimited, alias: "a: 1", replaces: ["2", "~"], quota: true, metadata: {a: {"1": 2.5, b: [~, true, "true", "", x, -3]}}}
`

func TestTextOfIsTheSameRule(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/rules.yaml")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	texts := map[string]string{"odd": odd}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	for name, text := range texts {
		file, err := rules.Parse(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for i := range file.Rules {
			written := ledger.TextOf(&file.Rules[i])
			again, err := ledger.ParseDocument(file.Rules[i].Name, written)
			if err != nil || !reflect.DeepEqual(again, file.Rules[i]) {
				t.Errorf("%s: %s is written as %q: %v", name, file.Rules[i].Name, written, err)
			}
		}
	}
}

// TestOddRuleHasAllFields: a new field of a rule has to be written too.
func TestOddRuleHasAllFields(t *testing.T) {
	file, err := rules.Parse("odd", []byte(odd))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range without(reflect.ValueOf(file.Rules), "Spec") {
		t.Errorf("no rule has %s", path)
	}
}

// without returns the fields that are zero in all structs of a list.
func without(list reflect.Value, path string) (missing []string) {
	kind := list.Type().Elem()
	for i := range kind.NumField() {
		fields := reflect.MakeSlice(reflect.SliceOf(kind.Field(i).Type), 0, list.Len())
		zero := true
		for j := range list.Len() {
			fields = reflect.Append(fields, list.Index(j).Field(i))
			zero = zero && list.Index(j).Field(i).IsZero()
		}
		name := path + "." + kind.Field(i).Name
		switch {
		case zero:
			missing = append(missing, name)
		case kind.Field(i).Type.Kind() == reflect.Struct:
			missing = append(missing, without(fields, name)...)
		}
	}
	return missing
}

func TestTextOfIsEmptyIfItCannotBeWritten(t *testing.T) {
	if text := ledger.TextOf(&rules.Spec{Name: "x", Limit: []string{"1/1s"}, Label: "a\x00b"}); text != "" {
		t.Errorf("%q", text)
	}
}
