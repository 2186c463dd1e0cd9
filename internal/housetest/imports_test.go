package housetest

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weirproject/weir"

// A pkg is what go list tells of a package, without its tests.
type pkg struct {
	ImportPath string
	Name       string
	Doc        string
	Imports    []string
	Deps       []string
}

// path is where the package lives in this module: "" for its root.
func (p *pkg) path() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

func packages(t *testing.T) (list []pkg) {
	t.Helper()
	for decoder := json.NewDecoder(bytes.NewReader(goTool(t, "list", "-json=ImportPath,Name,Doc,Imports,Deps", "./..."))); decoder.More(); {
		var p pkg
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	if len(list) < 10 {
		t.Fatalf("go list found only %d packages", len(list))
	}
	return list
}

func goTool(t *testing.T, args ...string) []byte {
	t.Helper()
	command := exec.Command("go", args...)
	command.Dir = root
	out, err := command.Output()
	if exit, ok := err.(*exec.ExitError); ok {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// within reports whether a path is one of the folders or lies below it.
func within(path string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return path == folder || folder != "" && strings.HasPrefix(path, folder+"/")
	})
}

func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func inModule(path string) (rest string, ok bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// lean are the packages that compile nothing beyond the standard library.
var lean = []string{"", "memstore", "internal/algorithm", "clientaddr", "pathform"}

func TestTheEmbeddedLimiterNeedsOnlyTheStandardLibrary(t *testing.T) {
	for _, p := range packages(t) {
		if !within(p.path(), lean...) || within(p.path(), machinery...) {
			continue
		}
		for _, dep := range p.Deps {
			if _, ours := inModule(dep); !ours && !isStandard(dep) {
				t.Errorf("%s compiles %s: whoever imports weir and memstore is promised nothing beyond the standard library", p.ImportPath, dep)
			}
		}
	}
}

// mayImport is who of the house may import whom, directly or not. The first row that a
// package lies in is its own.
var mayImport = []struct {
	who, whom []string
	reason    string
}{
	{[]string{""}, nil,
		"the words stand alone: everybody speaks them, so they may depend on nobody"},
	{[]string{"internal/algorithm"}, []string{"", "internal/algorithm"},
		"an algorithm is pure arithmetic: it knows the words and no store"},
	{[]string{"memstore"}, []string{"", "memstore", "internal/algorithm"},
		"a store never imports a rule, a front end, or another store: it decides claims and knows no policy"},
	{[]string{"internal/respguard"}, nil, "it reads bytes"},
	{[]string{"internal/redisslot"}, nil, "it is arithmetic, and knows no caller"},
	{[]string{"internal/deadline"}, nil, "it is time, and knows no caller"},
	{[]string{"internal/redisconn"}, []string{"", "internal/algorithm", "internal/redisconn", "internal/redisslot", "internal/respguard"},
		"it reaches a Redis and runs scripts there, whatever lies in it"},
	{[]string{"redisstore"}, []string{"", "redisstore", "internal/algorithm", "internal/deadline", "internal/redisconn", "internal/redisslot", "internal/respguard"},
		"a store never imports a rule, a front end, or another store: it decides claims and knows no policy"},
	{[]string{"layers", "internal/layers"}, []string{"", "layers", "internal/layers", "memstore", "internal/algorithm", "internal/redisslot"},
		"a layer is a store over a store: which one, and by which rules, is the wiring's business; memstore is what counts in the process"},
	{[]string{"storetest"}, []string{"", "storetest", "internal/algorithm"},
		"the suite runs on any store, so it may know none"},
	{[]string{"internal/ruleset/redissource"}, []string{"internal/ruleset", "", "rules", "pathform", "internal/redisconn", "internal/redisslot", "internal/algorithm", "internal/nearest", "internal/netaddr", "internal/respguard"},
		"it reaches its Redis as the store does, by the same URLs; of the store itself it knows nothing"},
	{[]string{"internal/ruleset"}, []string{"", "rules", "pathform", "internal/ruleset", "internal/netaddr"},
		"rule sets are files and their merge; only redissource reaches a Redis"},
	{[]string{"internal/server/admin"}, []string{"", "clientaddr", "pathform", "gate", "rules", "httplimit", "internal/webvalues", "internal/wording", "internal/server", "internal/ruleset", "observe", "internal/servermetrics", "internal/ratefields", "internal/pace", "internal/deadline", "internal/netaddr", "internal/telemetry", "internal/tally", "internal/keytext", "internal/requestid"},
		"operators change the ledger; a front end never imports a store"},
	{[]string{"rules"}, []string{"", "rules", "pathform", "internal/netaddr"},
		"rules are plain data, and their patterns have the form of paths; they call no store, and what becomes of a refusal is the gate's"},
	{[]string{"gate"}, []string{"", "rules", "pathform", "gate", "internal/deadline", "internal/netaddr", "internal/requestid"},
		"the gate speaks weir.Store: which store it is, and on which wire the request came, is not its business"},
	{[]string{"observe"}, []string{"", "rules", "pathform", "gate", "observe", "internal/deadline", "internal/netaddr", "internal/requestid"},
		"observers are told of verdicts; they know no front end and no store"},
	{[]string{"internal/servermetrics"}, []string{"", "rules", "pathform", "gate", "observe", "internal/servermetrics", "internal/tally", "internal/deadline", "internal/netaddr", "internal/requestid"},
		"servers count in it; it knows none of them"},
	{[]string{"internal/telemetry/history"}, []string{"", "rules", "pathform", "gate", "observe", "internal/telemetry", "internal/tally", "internal/ruleset", "internal/redisconn", "internal/redisslot", "internal/respguard", "internal/algorithm", "internal/deadline", "internal/netaddr", "internal/keytext", "internal/requestid"},
		"it keeps what the recorder counted, and reads the changes of the ledger; it knows no front end and no store"},
	{[]string{"internal/telemetry"}, []string{"", "rules", "pathform", "gate", "observe", "internal/telemetry", "internal/redisconn", "internal/redisslot", "internal/respguard", "internal/algorithm", "internal/deadline", "internal/netaddr", "internal/keytext", "internal/requestid"},
		"telemetry observes verdicts and keeps their history; it knows no front end and no store"},
	{[]string{"internal/accesslog"}, []string{"", "internal/accesslog", "internal/netaddr"},
		"it reads lines; what rules say to them is the replay's business"},
	{[]string{"clientaddr", "pathform", "internal/netaddr"}, []string{"", "internal/netaddr"},
		"they read what stands in a request; what is done about it is the gate's and the rules'"},
	{[]string{"engine", "internal/engine"}, []string{"", "memstore", "redisstore", "layers", "clientaddr", "pathform", "rules", "gate", "httplimit", "observe", "internal/servermetrics", "internal/ratefields", "internal/pace", "internal/webvalues", "internal/wording", "internal/engine", "internal/ruleset", "internal/layers", "internal/algorithm", "internal/nearest", "internal/netaddr", "internal/deadline", "internal/redisconn", "internal/redisslot", "internal/respguard", "internal/bounds", "internal/quota", "internal/telemetry", "internal/keytext", "internal/requestid"},
		"the wiring is below the command, and users of engine compile no flags and no front end"},
	{[]string{"internal/ratefields", "internal/pace"}, []string{""},
		"they read and write what limits say on the wire, for HTTP and gRPC; they decide nothing"},
	{[]string{"internal/ruletest"}, []string{"", "gate", "rules", "pathform", "memstore", "internal/layers", "internal/algorithm", "internal/deadline", "internal/netaddr", "internal/ratefields", "clientaddr", "internal/whynot", "internal/requestid"},
		"tests of rules run on the gate and the embedded store; front ends and Redis have no part in them"},
	{[]string{"internal/review"}, []string{"", "rules", "pathform", "internal/netaddr"},
		"it reads rules and calls no store; front ends have no part in it"},
	{[]string{"internal/webvalues"}, []string{""}, "it reads texts; what they are for is the rules' business"},
	{[]string{"internal/requestid"}, []string{}, "it reads texts"},
	{[]string{"internal/backtest/page"}, []string{"", "gate", "rules", "pathform", "clientaddr", "memstore", "internal/accesslog", "internal/backtest", "internal/webvalues", "internal/algorithm", "internal/deadline", "internal/netaddr", "internal/server/console/static", "internal/keytext", "internal/quota", "internal/whynot", "internal/requestid"},
		"the page of a report draws with the charts of the console"},
	{[]string{"internal/backtest"}, []string{"", "gate", "rules", "pathform", "clientaddr", "memstore", "internal/accesslog", "internal/backtest", "internal/webvalues", "internal/algorithm", "internal/deadline", "internal/netaddr", "internal/keytext", "internal/quota", "internal/whynot", "internal/requestid"},
		"a log is replayed through the gate and the embedded store; front ends and Redis have no part in it"},
	{[]string{"internal/ruleimport"}, []string{"", "rules", "pathform", "internal/ruleset", "internal/netaddr"},
		"it makes rules of files; it decides nothing, and reaches no server"},
	{[]string{"internal/wording"}, []string{"", "rules", "pathform", "gate", "internal/deadline", "internal/netaddr", "internal/requestid"},
		"it puts verdicts into words for every front end, and knows none"},
	{[]string{"internal/listen"}, []string{"", "clientaddr", "internal/netaddr"},
		"a listener knows who may connect, not what is said then"},
	{[]string{"httplimit", "grpclimit", "internal/server"}, []string{"", "clientaddr", "pathform", "gate", "rules", "httplimit", "grpclimit", "internal/server", "observe", "internal/servermetrics", "internal/telemetry", "internal/deadline", "internal/netaddr", "internal/ratefields", "internal/pace", "internal/webvalues", "internal/wording", "internal/keytext", "internal/requestid"},
		"a front end never imports a store: it parses and renders, the gate decides"},
}

// plain are packages of constants, arithmetic, tables and waiting, which all but the lowest packages may import.
var plain = []string{"internal/nearest", "internal/bounds", "internal/quota", "internal/pause", "internal/tally", "internal/rpcstatus",
	"internal/endpoints", "internal/servicekind", "internal/rotated", "internal/timewords"}

func TestTheHouseImportsDownwards(t *testing.T) {
	for _, p := range packages(t) {
		for _, rule := range mayImport {
			if !within(p.path(), rule.who...) {
				continue
			}
			for _, dep := range p.Deps {
				if whom, ours := inModule(dep); ours && !within(whom, rule.whom...) && (rule.whom == nil || !within(whom, plain...)) {
					t.Errorf("%s imports %s: %s", p.ImportPath, dep, rule.reason)
				}
			}
			break
		}
	}
}

// vendors are who may import what is not ours, tests aside. Only the wiring (internal/cli,
// cmd, examples) may import more than one of them, by importing the packages named here.
var vendors = map[string]struct {
	homes  []string
	reason string
}{
	"github.com/redis/rueidis":            {[]string{"internal/redisconn", "redisstore", "internal/ruleset/redissource", "internal/telemetry/history"}, "the client of what lies in Redis, state and rules; other packages speak weir.Store"},
	"github.com/redis/go-redis":           {[]string{"redisstore/goredisconn"}, "only for programs that have such a client already: others should not compile a second one"},
	"go.yaml.in/yaml":                     {[]string{"rules", "internal/ruleset/ledger", "internal/ruletest", "internal/ruleimport"}, "rule files are read in one place, with one strictness; what is imported is read as its own program reads it; tests of rules are files of their own; the ledger only moves fields when a candidate is promoted"},
	"github.com/cespare/xxhash":           {[]string{"rules"}, "who is within a percentage must be the same for ever, on every platform"},
	"golang.org/x/text":                   {[]string{"rules"}, "the normaliser nfkc and the distances of languages: Unicode's tables are not ours to keep"},
	"github.com/go-json-experiment/json":  {[]string{"internal/server/api", "internal/server/admin", "internal/server/console", "internal/server/web", "internal/backtest/page"}, "documents over HTTP are read with one strictness"},
	"github.com/prometheus/client_golang": {[]string{"observe", "engine", "internal/servermetrics", "internal/telemetry"}, "who counts needs it; who is counted does not"},
	"google.golang.org/grpc": {[]string{"internal/cli", "internal/server/grpcserver", "internal/server/rls",
		"internal/server/extauthz", "grpclimit", "examples/grpc"},
		"front ends that speak gRPC; library users of the others compile none of it"},
	"github.com/envoyproxy/go-control-plane": {[]string{"internal/server/rls", "internal/server/extauthz"},
		"Envoy's contracts belong to the front ends that speak them"},
	"google.golang.org/protobuf": {[]string{"internal/server/grpcserver", "internal/server/rls", "internal/server/extauthz",
		"grpclimit", "examples/grpc", "internal/telemetry/otlp/otlptest"}, "messages of gRPC; of OpenTelemetry in tests"},
	"google.golang.org/genproto":           {[]string{"internal/server/extauthz", "grpclimit"}, "status codes and details of errors of gRPC"},
	"github.com/dunglas/httpsfv":           {[]string{"internal/ratefields"}, "clients read RateLimit of any server"},
	"github.com/pires/go-proxyproto":       {[]string{"internal/listen"}, "connections are opened in one place"},
	"github.com/fsnotify/fsnotify":         {[]string{"internal/ruleset/filesource"}, "only files can be watched; other sources are told, or ask"},
	"github.com/oschwald/maxminddb-golang": {[]string{"internal/ruleset/geosource"}, "files of countries are read in one place"},
	"github.com/maxmind/mmdbwriter":        {[]string{"internal/ruleset/geosource/geotest"}, "such files, in tests only"},
	"github.com/spf13/cobra":               {[]string{"internal/cli"}, "the command; libraries have no flags"},
	"github.com/spf13/pflag":               {[]string{"internal/cli"}, "the command's flags"},
	"go.opentelemetry.io":                  {otlpHomes, "traces and metrics leave in one place; only the server compiles the SDK"},
	"github.com/go-logr/logr":              {otlpHomes, "the log of OpenTelemetry's SDK"},
	"github.com/getkin/kin-openapi":        {[]string{"internal/housetest/openapitest"}, "answers are compared with their documents, in tests only"},
	"pgregory.net/rapid":                   {[]string{"storetest", "internal/algorithm/stories/chance"}, "properties, in tests only"},
	"github.com/anishathalye/porcupine":    {[]string{"storetest"}, "linearizability, in tests only"},
}

var otlpHomes = []string{"internal/telemetry/otlp", "internal/telemetry/otlp/otlptest"}

func TestVendorsStayInTheirHomes(t *testing.T) {
	for _, p := range packages(t) {
		for _, path := range p.Imports {
			if _, ours := inModule(path); ours || isStandard(path) {
				continue
			}
			vendor := vendorOf(path)
			if vendor == "" {
				t.Errorf("%s imports %s: a dependency enters with a line in docs/dependencies.md, and one in this test that says where it may be used", p.ImportPath, path)
				continue
			}
			if !slices.Contains(vendors[vendor].homes, p.path()) {
				t.Errorf("%s imports %s, which belongs in %v: %s", p.ImportPath, path, vendors[vendor].homes, vendors[vendor].reason)
			}
		}
	}
}

// TestOnlyTheServerCompilesOpenTelemetry: its SDK is 2 MB of the binary.
func TestOnlyTheServerCompilesOpenTelemetry(t *testing.T) {
	for _, p := range packages(t) {
		if within(p.path(), append(otlpHomes, "internal/cli", "cmd/weir")...) {
			continue
		}
		for _, dep := range p.Deps {
			if within(dep, "go.opentelemetry.io") || within(dep, module+"/internal/telemetry/otlp") {
				t.Errorf("%s compiles %s, which only the server needs", p.ImportPath, dep)
			}
		}
	}
}

// A program that executes a template calls methods by names that the linker does not know, so it keeps every exported
// method: weir's binary is 12 MB larger then. Package rules uses the escaping functions alone.
func TestNoTemplateIsExecuted(t *testing.T) {
	for _, p := range packages(t) {
		if p.path() == "rules" {
			continue
		}
		for _, path := range p.Imports {
			if path == "text/template" || path == "html/template" {
				t.Errorf("%s imports %s: write the text with fmt", p.ImportPath, path)
			}
		}
	}
}

// compilesGRPC are the public packages whose users compile gRPC.
var compilesGRPC = []string{"grpclimit"}

func TestUsersOfOtherPackagesCompileNoGRPC(t *testing.T) {
	for _, p := range packages(t) {
		if !public(p.path()) || within(p.path(), compilesGRPC...) {
			continue
		}
		for _, dep := range p.Deps {
			if within(dep, "google.golang.org/grpc") {
				t.Errorf("%s compiles %s: only grpclimit may", p.ImportPath, dep)
			}
		}
	}
}

// Without the build tag, google.golang.org/grpc imports golang.org/x/net/trace, a debug page that weir has not: it
// executes html/template, and the binary is 15 MB larger.
func TestTheServerIsBuiltWithoutTheTraceOfGRPC(t *testing.T) {
	const tag = "grpcnotrace"
	deps := string(goTool(t, "list", "-tags", tag, "-deps", "./cmd/weir"))
	for _, path := range []string{"golang.org/x/net/trace", "html/template", "google.golang.org/grpc/xds"} {
		if strings.Contains(deps, path+"\n") {
			t.Errorf("cmd/weir compiles %s", path)
		}
	}
	for _, name := range []string{"Makefile", "README.md", "docs/weir.md", "docs/zh/quickstart.md"} {
		text, err := read(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			builds := strings.Contains(line, "./cmd/weir") && (strings.Contains(line, "go build") || strings.Contains(line, "go install"))
			if builds && !strings.Contains(line, "-tags "+tag) {
				t.Errorf("%s builds weir without -tags %s: %s", name, tag, line)
			}
		}
	}
	if text, _ := read("Makefile"); !strings.Contains(text, "-tags="+tag) {
		t.Errorf("the Makefile builds and tests without -tags=%s", tag)
	}
}

func vendorOf(path string) string {
	for vendor := range vendors {
		if within(path, vendor) {
			return vendor
		}
	}
	return ""
}

func TestEveryDependencySaysWhatItIsFor(t *testing.T) {
	text, err := read("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{".", "bench"} {
		for line := range strings.Lines(string(goTool(t, "-C", dir, "list", "-m", "-f", "{{if not (or .Indirect .Main)}}{{.Path}}{{end}}", "all"))) {
			path := strings.TrimSpace(line)
			if path != "" && path != module && !strings.Contains(text, path) {
				t.Errorf("docs/dependencies.md does not say what %s is for, what else was weighed and how it is kept (required by %s/go.mod)", path, dir)
			}
		}
	}
}
