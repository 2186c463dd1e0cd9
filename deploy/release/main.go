// Command release makes the files of a release for make dist: archives with the program for each system, Debian
// packages, an image as an OCI archive, the Helm chart, a list of the parts (SBOM) for each program, and SHA256SUMS.
// The same sources and the same Go give the same bytes on any machine: all times in archives are SOURCE_DATE_EPOCH, or
// the time of the last commit.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
	r := &release{}
	targets := flag.String("targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "`SYSTEMS` to build for")
	flag.StringVar(&r.root, "root", ".", "the `DIRECTORY` of the sources")
	flag.StringVar(&r.out, "out", "dist", "the `DIRECTORY` to write to")
	flag.StringVar(&r.version, "version", "", "the `VERSION`, such as 1.2.0; default: that of git describe")
	flag.Parse()
	if err := r.make(strings.Split(*targets, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// A release is one version of the program, for all systems.
type release struct {
	root, out string
	version   string
	modified  time.Time // of all files
	notices   []byte    // licences of the modules
	docs      []file    // completions and manual pages, below their names in an archive
}

// A program is built for one system.
type program struct {
	os, arch string
	binary   []byte
}

func (p *program) name() string { return p.os + "_" + p.arch }

func (r *release) make(targets []string) error {
	if err := r.describe(); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	host, err := r.build(runtime.GOOS, runtime.GOARCH)
	if err == nil {
		err = r.document(host)
	}
	if err != nil {
		return err
	}
	var programs []*program
	for _, target := range targets {
		p := host
		if system, arch, _ := strings.Cut(target, "/"); system != host.os || arch != host.arch {
			p, err = r.build(system, arch)
		}
		if err == nil {
			err = r.pack(p)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		programs = append(programs, p)
	}
	if err := r.image(programs); err != nil {
		return err
	}
	if err := r.chart(); err != nil {
		return err
	}
	return r.sum()
}

// describe finds out the version and the time of the sources.
func (r *release) describe() error {
	if r.version == "" {
		said, err := r.run("git", "describe", "--tags", "--always", "--dirty", "--match", "v*")
		if err != nil {
			return err
		}
		r.version = strings.TrimPrefix(strings.TrimSpace(said), "v")
		if !strings.Contains(r.version, ".") { // there is no tag
			r.version = "0.0.0-" + r.version
		}
	}
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		said, err := r.run("git", "log", "-1", "--format=%ct")
		if err != nil {
			return err
		}
		text = strings.TrimSpace(said)
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH is %.80q; allowed: seconds since 1970", text)
	}
	r.modified = time.Unix(seconds, 0).UTC()
	return nil
}

// run runs a command in the directory of the sources, and returns its output.
func (r *release) run(name string, args ...string) (string, error) {
	command := exec.Command(name, args...)
	command.Dir, command.Stderr = r.root, os.Stderr
	said, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w", command, err)
	}
	return string(said), err
}

// build compiles the program: static, without symbols, and without paths of this machine.
func (r *release) build(system, arch string) (*program, error) {
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	const released = "github.com/weirproject/weir/server/internal/cli.released"
	binary := filepath.Join(dir, "weir")
	command := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace",
		"-ldflags=-s -w -buildid= -X "+released+"="+r.version, "-o", binary, "./server/cmd/weir")
	command.Dir, command.Stderr = r.root, os.Stderr
	// This program is built without the workspace (GOWORK=off), which has the modules of weir.
	command.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=", "CGO_ENABLED=0", "GOOS="+system,
		"GOARCH="+arch, "GOAMD64=v1",
		"GOARM64=v8.0", "GOEXPERIMENT=")
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	text, err := os.ReadFile(binary)
	return &program{system, arch, text}, err
}

// document has the program of this machine write its manual pages and completions.
func (r *release) document(host *program) error {
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	weir := filepath.Join(dir, "weir")
	if err := os.WriteFile(weir, host.binary, 0o755); err != nil {
		return err
	}
	for shell, name := range map[string]string{"bash": "weir", "zsh": "_weir", "fish": "weir.fish"} {
		said, err := r.run(weir, "completion", shell)
		if err != nil {
			return err
		}
		r.docs = append(r.docs, plain("completions/"+shell+"/"+name, []byte(said)))
	}
	if _, err := r.run(weir, "man", "--dir", filepath.Join(dir, "man1")); err != nil {
		return err
	}
	pages, err := os.ReadDir(filepath.Join(dir, "man1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(dir, "man1", page.Name()))
		if err != nil {
			return err
		}
		r.docs = append(r.docs, plain("man1/"+page.Name(), text))
	}
	sorted(r.docs)
	r.notices, err = r.licences(host)
	return err
}

// pack writes what there is of a program alone.
func (r *release) pack(p *program) error {
	list, err := bom(p, r)
	if err != nil {
		return err
	}
	top := "weir_" + r.version + "_" + p.name()
	files := []file{{name: "weir", mode: 0o755, text: p.binary}, {name: "ratelimit", link: "weir"}}
	files = append(append(files, plain("NOTICES", r.notices)), r.docs...)
	if p.os == "linux" {
		if err := r.deb(p); err != nil {
			return err
		}
		unit, err := os.ReadFile(filepath.Join(r.root, "deploy/systemd/weir.service"))
		if err != nil {
			return err
		}
		files = append(files, plain("weir.service", unit))
	}
	for i := range files {
		files[i].name = top + "/" + files[i].name
	}
	if err := r.write(top+".cdx.json", list); err != nil {
		return err
	}
	return r.write(top+".tar.gz", gzipped(archive(files, r.modified)))
}

func (r *release) write(name string, text []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), text, 0o644)
}

// chart writes the Helm chart, with the version of the release.
func (r *release) chart() error {
	dir := filepath.Join(r.root, "deploy/helm")
	files, err := tree(dir, "weir")
	if err != nil {
		return err
	}
	for i := range files {
		if files[i].name == "weir/Chart.yaml" {
			text := strings.NewReplacer("version: 0.0.0", "version: "+r.version, "appVersion: \"0.0.0\"",
				"appVersion: \""+r.version+"\"").Replace(string(files[i].text))
			files[i].text = []byte(text)
		}
	}
	return r.write("weir-chart-"+r.version+".tgz", gzipped(archive(files, r.modified)))
}

// sum writes SHA256SUMS, as sha256sum -c reads it.
func (r *release) sum() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), e.Name())
	}
	return r.write("SHA256SUMS", []byte(sums.String()))
}
