package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestUnitIsHardened asks systemd how exposed the service is; 2.0 is the most.
func TestUnitIsHardened(t *testing.T) {
	said, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=20", "../systemd/weir.service").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestSameProgramSameBytes: nothing of the moment or of this machine is in what is made of a program. The program is
// this test.
func TestSameProgramSameBytes(t *testing.T) {
	binary := own(t)
	var made [2]map[string]string
	for i := range made {
		r := &release{root: "../..", out: t.TempDir(), version: "1.2.0-rc1", modified: time.Unix(1e9, 0).UTC(), docs: []file{
			plain("completions/bash/weir", []byte("complete")), plain("man1/weir.1", []byte(".TH"))}}
		p := &program{"linux", "amd64", binary}
		var err error
		if r.notices, err = r.licences(p); err == nil {
			err = r.pack(p)
		}
		if err == nil {
			err = r.image([]*program{p})
		}
		if err == nil {
			err = r.chart()
		}
		if err == nil {
			err = r.sum()
		}
		if err != nil {
			t.Fatal(err)
		}
		made[i] = contents(t, r.out)
		if i == 0 {
			sumsMatch(t, r.out)
			isDebian(t, filepath.Join(r.out, "weir_1.2.0~rc1_amd64.deb"))
		}
	}
	if len(made[0]) != 6 {
		t.Errorf("%d files were made", len(made[0]))
	}
	for name, text := range made[0] {
		if text != made[1][name] {
			t.Errorf("%s differs when it is made again", name)
		}
	}
	if notices := made[0]["weir_1.2.0-rc1_linux_amd64.cdx.json"]; !strings.Contains(notices, "pkg:golang/github.com/opencontainers/image-spec@v1.1.1") {
		t.Errorf("the list of parts lacks a module:\n%s", notices)
	}
}

// isDebian has dpkg read a package.
func isDebian(t *testing.T, name string) {
	fields, err := exec.Command("dpkg-deb", "--field", name, "Version", "Architecture").CombinedOutput()
	if want := "Version: 1.2.0~rc1\nArchitecture: amd64\n"; err != nil || string(fields) != want {
		t.Errorf("%s %v, want %s", fields, err, want)
	}
	list, err := exec.Command("dpkg-deb", "--contents", name).CombinedOutput()
	for _, want := range []string{"./usr/bin/weir\n", "./lib/systemd/system/weir.service\n", "./etc/weir/weir.yaml\n", "./usr/share/man/man1/weir.1.gz\n",
		"./usr/share/bash-completion/completions/weir\n"} {
		if err != nil || !strings.Contains(string(list), want) {
			t.Errorf("%v: no %q in\n%s", err, want, list)
		}
	}
}

func sumsMatch(t *testing.T, dir string) {
	command := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	command.Dir = dir
	if said, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// own is the program of this test.
func own(t *testing.T) []byte {
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func contents(t *testing.T, dir string) map[string]string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}
