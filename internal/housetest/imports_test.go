package housetest

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path"
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
	for decoder := json.NewDecoder(bytes.NewReader(goTool(t, "list", "-json=ImportPath,Name,Doc,Imports,Deps", "work"))); decoder.More(); {
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

// stores and frontEnds are sets of packages in the table below.
var (
	stores    = []string{"memstore", "redisstore", "layers"}
	frontEnds = []string{"httplimit", "grpclimit", "server/internal/admin", "server/internal/api",
		"server/internal/console", "server/internal/extauthz", "server/internal/forwardauth", "server/internal/gateway",
		"server/internal/grpcserver", "server/internal/resp", "server/internal/rls", "server/internal/web"}
	policy = []string{"rules", "gate", "httplimit", "grpclimit", "observe", "engine", "internal/engine",
		"internal/ruleset", "internal/telemetry"}
	tools = []string{"tools"}
)

// mayNotImport lists imports that are mistakes, direct or not.
var mayNotImport = []struct {
	who, whom []string
	reason    string
}{
	{[]string{""}, []string{"memstore", "internal", "rules", "gate", "clientaddr", "pathform"},
		"limits, claims and decisions are the vocabulary of all packages, so they depend on no other"},
	{[]string{"internal/algorithm"}, []string{"memstore", "redisstore", "internal/redisconn", "rules", "gate"},
		"an algorithm is arithmetic: it knows no store"},
	{stores, policy, "a store decides claims: it knows no rule and no front end"},
	{[]string{"memstore"}, []string{"redisstore", "internal/redisconn", "layers"}, "a store knows no other store"},
	{[]string{"redisstore"}, []string{"memstore", "layers"}, "a store knows no other store"},
	{[]string{"layers"}, []string{"redisstore", "internal/redisconn"},
		"a layer is a store over any store: the wiring chooses which"},
	{[]string{"storetest"}, append([]string{"memstore", "redisstore", "layers"}, policy...), "the suite tests any store"},
	{[]string{"rules"}, append([]string{"gate", "httplimit", "observe", "internal/engine", "internal/ruleset"}, stores...),
		"rules are data: they call no store"},
	{[]string{"gate"}, append([]string{"httplimit", "observe", "internal/engine", "internal/ruleset"}, stores...),
		"the gate calls a weir.Store, whichever it is, for requests of any protocol"},
	{[]string{"observe", "internal/telemetry"}, append([]string{"httplimit", "internal/engine"}, stores...),
		"an observer receives verdicts: it knows no store and no front end"},
	{[]string{"internal/ruleset"}, append([]string{"gate", "httplimit", "internal/engine"}, stores...),
		"a source of rules reads files, URLs or hashes: it decides nothing"},
	{frontEnds, append([]string{"internal/engine", "internal/redisconn"}, stores...),
		"a front end parses and renders; the gate decides, whatever the store is"},
	{append([]string{"server/internal/listen", "server/internal/otlp"}, frontEnds...), tools,
		"only the table of commands imports the tools"},
	{tools, append([]string{"server", "redisstore", "internal/engine"}, "httplimit"),
		"a tool decides with the gate and the embedded store, as a server would, and reaches none"},
}

func TestPackagesImportDownwards(t *testing.T) {
	for _, p := range packages(t) {
		for _, rule := range mayNotImport {
			if !within(p.path(), rule.who...) || within(p.path(), machinery...) {
				continue
			}
			for _, dep := range p.Deps {
				if whom, ours := inModule(dep); ours && within(whom, rule.whom...) {
					t.Errorf("%s imports %s: %s", p.ImportPath, dep, rule.reason)
				}
			}
		}
	}
}

// vendors are who may import what is not ours, tests aside. Only the wiring (internal/cli,
// cmd, examples) may import more than one of them, by importing the packages named here.
var vendors = map[string]struct {
	homes  []string
	reason string
}{
	"github.com/redis/rueidis":            {[]string{"internal/redisconn"}, "the client library is replaced, guarded and left out of small programs in one place"},
	"github.com/redis/go-redis":           {[]string{"contrib/goredisconn"}, "only for programs that have such a client already: others should not compile a second one"},
	"github.com/go-chi/chi":               {[]string{"examples/chi"}, "an example of a framework"},
	"github.com/gorilla/mux":              {[]string{"examples/gorilla"}, "an example of a framework"},
	"go.yaml.in/yaml":                     {[]string{"rules", "internal/ruleset/ledger", "internal/yamltree", "internal/ratelimitconf", "tools/internal/ruletest", "tools/ruleimport", "contrib/import-kong", "contrib/import-spring"}, "rule files are read in one place, with one strictness; what is imported is read as its own program reads it; tests of rules are files of their own; the ledger only moves fields when a candidate is promoted"},
	"golang.org/x/text":                   {[]string{"rules"}, "the normaliser nfkc and the distances of languages: Unicode's tables are not ours to keep"},
	"github.com/go-json-experiment/json":  {[]string{"server/internal/api", "server/internal/admin", "server/internal/console", "server/internal/web", "tools/internal/backtest/page"}, "documents over HTTP are read with one strictness"},
	"github.com/prometheus/client_golang": {[]string{"observe", "engine", "internal/servermetrics", "internal/telemetry", "server/internal/ratelimit"}, "who counts needs it; who is counted does not"},
	"google.golang.org/grpc": {[]string{"server/internal/cli", "server/internal/grpcserver", "server/internal/rls", "server/internal/ratelimit",
		"server/internal/extauthz", "server/internal/xdssource", "grpclimit", "examples/grpc"},
		"front ends that speak gRPC, and rules that arrive by it; library users of the others compile none of it"},
	"github.com/envoyproxy/go-control-plane": {[]string{"server/internal/rls", "server/internal/extauthz", "server/internal/xdssource", "server/internal/ratelimit"},
		"Envoy's contracts belong to the packages that speak them"},
	"google.golang.org/protobuf": {[]string{"server/internal/grpcserver", "server/internal/rls", "server/internal/extauthz", "server/internal/ratelimit",
		"server/internal/xdssource", "grpclimit", "examples/grpc", "server/internal/otlp/otlptest"},
		"messages of gRPC; of OpenTelemetry in tests"},
	"google.golang.org/genproto":           {[]string{"server/internal/extauthz", "server/internal/xdssource", "grpclimit"}, "status codes and details of errors of gRPC"},
	"github.com/dunglas/httpsfv":           {[]string{"internal/ratefields"}, "clients read RateLimit of any server"},
	"github.com/andybalholm/brotli":        {[]string{"server/internal/gateway"}, "responses are read in one place"},
	"github.com/klauspost/compress":        {[]string{"server/internal/gateway"}, "responses are read in one place"},
	"github.com/pires/go-proxyproto":       {[]string{"server/internal/listen"}, "connections are opened in one place"},
	"github.com/fsnotify/fsnotify":         {[]string{"internal/ruleset/filesource"}, "only files can be watched; other sources are told, or ask"},
	"github.com/oschwald/maxminddb-golang": {[]string{"server/internal/geosource"}, "files of countries are read in one place"},
	"github.com/maxmind/mmdbwriter":        {[]string{"server/internal/geosource/geotest"}, "such files, in tests only"},
	"github.com/spf13/cobra":               {[]string{"server/internal/cli", "tools/command"}, "the command; libraries have no flags"},
	"github.com/spf13/pflag":               {[]string{"server/internal/cli", "tools/command"}, "the command's flags"},
	"go.opentelemetry.io":                  {otlpHomes, "traces and metrics leave in one place; only the server compiles the SDK"},
	"github.com/go-logr/logr":              {otlpHomes, "the log of OpenTelemetry's SDK"},
	"github.com/getkin/kin-openapi":        {[]string{"server/internal/openapitest"}, "answers are compared with their documents, in tests only"},
	"pgregory.net/rapid":                   {[]string{"storetest", "internal/algorithm/stories/chance"}, "properties, in tests only"},
	"github.com/anishathalye/porcupine":    {[]string{"storetest"}, "linearizability, in tests only"},
}

var otlpHomes = []string{"server/internal/otlp", "server/internal/otlp/otlptest"}

func TestVendorsStayInTheirHomes(t *testing.T) {
	for _, p := range packages(t) {
		for _, path := range p.Imports {
			if _, ours := inModule(path); ours || isStandard(path) {
				continue
			}
			vendor := vendorOf(path)
			if vendor == "" {
				t.Errorf("%s imports %s: a dependency enters with a line in docs/why/dependencies.md, and one in this test that says where it may be used", p.ImportPath, path)
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
		if within(p.path(), append(otlpHomes, "server/internal/cli", "server/cmd/weir")...) {
			continue
		}
		for _, dep := range p.Deps {
			if within(dep, "go.opentelemetry.io") || within(dep, module+"/server/internal/otlp") {
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

// TestTheCommandExecutesNoTemplate: cobra links its templates as soon as one of these is called.
func TestTheCommandExecutesNoTemplate(t *testing.T) {
	sources, err := files(".go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sources {
		if !within(name, "server", "tools") {
			continue
		}
		text, err := read(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range []string{"SetVersionTemplate(", "SetUsageTemplate(", "SetHelpTemplate("} {
			if strings.Contains(text, call) {
				t.Errorf("%s calls %s…): the binary would be 15 MB larger", name, call)
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
	deps := string(goTool(t, "list", "-tags", tag, "-deps", "./server/cmd/weir"))
	for _, path := range []string{"golang.org/x/net/trace", "html/template", "google.golang.org/grpc/xds"} {
		if strings.Contains(deps, path+"\n") {
			t.Errorf("weir compiles %s", path)
		}
	}
	for _, name := range []string{"Makefile", "README.md", "README.zh-CN.md", "docs/reference/weir.md", "docs/howto/deploying.md", "docs/start/tutorial.md", "docs/zh/quickstart.md"} {
		text, err := read(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			builds := strings.Contains(line, "./server/cmd/weir") && (strings.Contains(line, "go build") || strings.Contains(line, "go install"))
			if builds && !strings.Contains(line, "-tags "+tag) {
				t.Errorf("%s builds weir without -tags %s: %s", name, tag, line)
			}
		}
	}
	if text, _ := read("Makefile"); !strings.Contains(text, "-tags="+tag) {
		t.Errorf("the Makefile builds and tests without -tags=%s", tag)
	}
}

// TestTheSmallServerCompilesNoHeavyPart: the README's first command compiles in half the time.
func TestTheSmallServerCompilesNoHeavyPart(t *testing.T) {
	deps := string(goTool(t, "list", "-tags", "small", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./server/cmd/weir"))
	for _, heavy := range []string{"github.com/redis/rueidis", "google.golang.org/grpc", "go.opentelemetry.io/", "github.com/envoyproxy/",
		"github.com/klauspost/compress", "github.com/andybalholm/brotli", "github.com/oschwald/"} {
		if strings.Contains(deps, heavy) {
			t.Errorf("weir with -tags small compiles %s", heavy)
		}
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

// modules are the directories with a go.mod.
func modules(t *testing.T) (dirs []string) {
	t.Helper()
	paths, err := files("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range paths {
		dirs = append(dirs, path.Dir(name))
	}
	return dirs
}

// required are the modules that a go.mod requires directly.
func required(t *testing.T, dir string) (paths []string) {
	t.Helper()
	text, err := read(path.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(words) == 2 && strings.HasPrefix(words[1], "v") {
			paths = append(paths, words[0])
		}
	}
	return paths
}

// TestTheLibraryRequiresLittle: each module that it requires is one more that its users download and watch.
func TestTheLibraryRequiresLittle(t *testing.T) {
	const maxRequired = 8
	list := required(t, ".")
	if len(list) > maxRequired {
		t.Errorf("the library requires %d modules, at most %d are wanted: %v", len(list), maxRequired, list)
	}
	for _, path := range list {
		for _, heavy := range []string{"google.golang.org/grpc", "go.opentelemetry.io", "github.com/envoyproxy", "github.com/spf13",
			"github.com/oschwald", "github.com/redis/go-redis", "github.com/Shopify"} {
			if within(path, heavy) || strings.HasPrefix(path, heavy) {
				t.Errorf("the library requires %s: that belongs to the server", path)
			}
		}
	}
}

func TestEveryDependencySaysWhatItIsFor(t *testing.T) {
	page, err := read("docs/why/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range modules(t) {
		for _, path := range required(t, dir) {
			if _, ours := inModule(path); !ours && !strings.Contains(page, path) {
				t.Errorf("docs/why/dependencies.md does not say what %s is for, what else was weighed and how it is kept (required by %s/go.mod)", path, dir)
			}
		}
	}
}
