//go:build dist

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
)

// These tests take too long for each merge, and need what make dist installs: go test -tags dist.

// dist is the directory that make dist has written.
func dist(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("WEIR_DIST")
	if dir == "" {
		t.Fatal("WEIR_DIST is the directory of a distribution; make dist sets it")
	}
	return dir
}

// only is the one file of the distribution that a pattern matches.
func only(t *testing.T, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dist(t), pattern))
	if err != nil || len(names) != 1 {
		t.Fatalf("%s: %q %v", pattern, names, err)
	}
	return names[0]
}

// distributed unpacks the archive for this machine, and returns its directory.
func distributed(t *testing.T) string {
	dir := t.TempDir()
	name := only(t, "weir_*_"+runtime.GOOS+"_"+runtime.GOARCH+".tar.gz")
	if said, err := exec.Command("tar", "-xzf", name, "-C", dir, "--strip-components=1").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return dir
}

func TestSums(t *testing.T) { sumsMatch(t, dist(t)) }

// TestBuiltTwice builds the archive for this machine again, in another directory and without a cache.
func TestBuiltTwice(t *testing.T) {
	sources, out := t.TempDir(), t.TempDir()
	name := filepath.Base(only(t, "weir_*_"+runtime.GOOS+"_"+runtime.GOARCH+".tar.gz"))
	version := strings.Split(name, "_")[1]
	shell := exec.Command("sh", "-c", `git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$0"`, sources)
	shell.Dir = "../.."
	if said, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	t.Setenv("GOCACHE", t.TempDir())
	r := &release{root: sources, out: out, version: version}
	if err := r.make([]string{runtime.GOOS + "/" + runtime.GOARCH}); err != nil {
		t.Fatal(err)
	}
	before, again := contents(t, dist(t)), contents(t, out)
	for _, name := range []string{name, strings.TrimSuffix(name, ".tar.gz") + ".cdx.json", "weir-chart-" + version + ".tgz"} {
		if again[name] == "" || again[name] != before[name] {
			t.Errorf("%s differs when it is built again", name)
		}
	}
}

func TestDebianPackageIsClean(t *testing.T) {
	packages, err := filepath.Glob(filepath.Join(dist(t), "*.deb"))
	if err != nil || len(packages) == 0 {
		t.Fatal(packages, err)
	}
	for _, name := range packages {
		said, err := exec.Command("lintian", "--allow-root", "--fail-on", "error,warning,info", name).CombinedOutput()
		if err != nil || len(bytes.TrimSpace(said)) > 0 {
			t.Errorf("%v\n%s", err, said)
		}
	}
}

// TestImageRuns unpacks the image by another program, and starts it as a container would: as nobody, on a root that it
// cannot write to.
func TestImageRuns(t *testing.T) {
	archived := only(t, "weir_*_image.tar")
	if os.Getuid() != 0 {
		t.Fatal("the image was not run: only root may change its root directory; run make dist as root")
	}
	dir := t.TempDir()
	in := func(args ...string) {
		t.Helper()
		command := exec.Command(args[0], args[1:]...)
		command.Dir = dir
		if said, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, said)
		}
	}
	in("sh", "-c", `mkdir image && tar -xf "$0" -C image`, archived)
	layout := filepath.Join(dir, "image")
	image := imageOf(t, layout)
	config := configOf(t, layout, image)
	// umoci chooses no platform: it gets a layout that has this one alone.
	image.Annotations = map[string]string{oci.AnnotationRefName: "here"}
	top := asJSON(oci.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []oci.Descriptor{image}})
	if err := os.WriteFile(filepath.Join(layout, oci.ImageIndexFile), top, 0o600); err != nil {
		t.Fatal(err)
	}
	in("umoci", "unpack", "--image", "image:here", "bundle")
	root := filepath.Join(dir, "bundle", "rootfs")
	inside := func(args ...string) *exec.Cmd {
		return exec.Command("unshare", append([]string{"--mount", "sh", "-c", `mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" &&
			exec chroot --userspec="$1" "$0" "$2" "$3" $4`, root, config.Config.User}, args...)...)
	}
	if config.Config.User != "65534:65534" {
		t.Errorf("the image runs as %q", config.Config.User)
	}
	env := append(config.Config.Env, "WEIR_HTTP=127.0.0.1:"+port(t), "WEIR_TOKEN=a-secret-of-this-test")
	start(t, inside(append(config.Config.Entrypoint, config.Config.Cmd...)...), env...)
	health := inside(config.Config.Healthcheck.Test[1:]...)
	health.Env = append(env, "PATH="+os.Getenv("PATH"))
	if said, err := health.CombinedOutput(); err != nil {
		t.Errorf("%q: %v\n%s", config.Config.Healthcheck.Test, err, said)
	}
	theirs := inside("/bin/ratelimit", "--help")
	if said, err := theirs.CombinedOutput(); err != nil || !strings.Contains(string(said), "envoyproxy/ratelimit") {
		t.Errorf("%v\n%s", err, said)
	}
	if said, err := inside("/bin/weir", "man", "--dir=/bin/new").CombinedOutput(); err == nil || !strings.Contains(string(said), "read-only") {
		t.Errorf("the root can be written to: %v\n%s", err, said)
	}
}

// imageOf is the image for this machine in a layout.
func imageOf(t *testing.T, layout string) oci.Descriptor {
	var top, index oci.Index
	read(t, filepath.Join(layout, oci.ImageIndexFile), &top)
	read(t, blob(layout, top.Manifests[0]), &index)
	for _, image := range index.Manifests {
		if image.Platform.Architecture == runtime.GOARCH {
			return image
		}
	}
	t.Fatalf("no image of %v is for %s", index.Manifests, runtime.GOARCH)
	return oci.Descriptor{}
}

func configOf(t *testing.T, layout string, image oci.Descriptor) (c configuration) {
	var manifest oci.Manifest
	read(t, blob(layout, image), &manifest)
	read(t, blob(layout, manifest.Config), &c)
	return c
}

func blob(layout string, d oci.Descriptor) string {
	return filepath.Join(layout, "blobs", string(d.Digest.Algorithm()), d.Digest.Encoded())
}

func read(t *testing.T, name string, to any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// port is a port that was free a moment ago.
func port(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// A served is a running server.
type served struct {
	mu   sync.Mutex
	said bytes.Buffer
}

// Write implements io.Writer, for the log of the server.
func (s *served) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.Write(text)
}

func (s *served) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.String()
}

// start starts a server, and waits until it is ready.
func start(t *testing.T, command *exec.Cmd, env ...string) *served {
	t.Helper()
	s := new(served)
	command.Env, command.Stdout, command.Stderr = append(env, "PATH="+os.Getenv("PATH")), s, s
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, ended := context.WithCancelCause(context.Background())
	go func() { ended(command.Wait()) }()
	t.Cleanup(func() {
		command.Process.Signal(syscall.SIGTERM)
		<-ctx.Done()
	})
	address := ""
	for _, v := range env {
		if name, value, _ := strings.Cut(v, "="); name == "WEIR_METRICS" || name == "WEIR_HTTP" && address == "" {
			address = value
		}
	}
	for ready := false; !ready; time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("weir has ended: %v\n%s", context.Cause(ctx), s.log())
		}
		if response, err := http.Get("http://" + address + "/readyz"); err == nil {
			io.Copy(io.Discard, response.Body)
			response.Body.Close()
			ready = response.StatusCode == http.StatusOK
		}
	}
	return s
}
