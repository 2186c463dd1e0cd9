package main

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maintainer is the one in deploy/debian/control.
const maintainer = "The weir authors <weirproject@users.noreply.github.com>"

// deb writes the package for Debian and its derivatives.
func (r *release) deb(p *program) error {
	files, err := r.installed(p)
	if err != nil {
		return err
	}
	control, err := r.control(p, files)
	if err != nil {
		return err
	}
	files = withDirs(files)
	for i := range files {
		files[i].name = "./" + files[i].name
	}
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	r.member(&b, "debian-binary", []byte("2.0\n"))
	r.member(&b, "control.tar.gz", gzipped(archive(control, r.modified)))
	r.member(&b, "data.tar.gz", gzipped(archive(files, r.modified)))
	return r.write("weir_"+r.debian()+"_"+p.arch+".deb", b.Bytes())
}

// debian is the version as Debian has it: a pre-release sorts before its release.
func (r *release) debian() string { return strings.Replace(r.version, "-", "~", 1) }

// changelog is the one that Debian wants; the changes are in CHANGELOG.md.
func (r *release) changelog() []byte {
	return fmt.Appendf(nil, "weir (%s) unstable; urgency=medium\n\n  * New release: see CHANGELOG.md.\n\n -- %s  %s\n",
		r.debian(), maintainer, r.modified.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
}

// member adds a file to an ar archive.
func (r *release) member(b *bytes.Buffer, name string, text []byte) {
	fmt.Fprintf(b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", name, r.modified.Unix(), 0, 0, "100644", len(text), text)
	if len(text)%2 != 0 {
		b.WriteByte('\n')
	}
}

// installed are the files of the package, by the paths that they are installed to.
func (r *release) installed(p *program) ([]file, error) {
	const docs = "usr/share/doc/weir/"
	files := []file{{name: "usr/bin/weir", mode: 0o755, text: p.binary}}
	for name, at := range map[string]string{
		"deploy/debian/weir.yaml":         "etc/weir/weir.yaml",
		"deploy/systemd/weir.service":     "lib/systemd/system/weir.service",
		"deploy/debian/copyright":         docs + "copyright",
		"deploy/debian/lintian-overrides": "usr/share/lintian/overrides/weir",
		"CHANGELOG.md":                    docs + "CHANGELOG.md.gz",
	} {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return nil, err
		}
		files = append(files, plain(at, text))
	}
	files = append(files, plain(docs+"NOTICES.gz", r.notices), plain(docs+"changelog.gz", r.changelog()))
	for _, f := range r.docs {
		place, name := filepath.Split(f.name)
		at := map[string]string{
			"completions/bash/": "usr/share/bash-completion/completions/",
			"completions/zsh/":  "usr/share/zsh/vendor-completions/",
			"completions/fish/": "usr/share/fish/vendor_completions.d/",
			"man1/":             "usr/share/man/man1/",
		}[place]
		if place == "man1/" {
			name += ".gz"
		}
		files = append(files, plain(at+name, f.text))
	}
	for i := range files {
		if strings.HasSuffix(files[i].name, ".gz") {
			files[i].text = gzipped(files[i].text)
		}
	}
	return sorted(files), nil
}

// control are the files that dpkg reads.
func (r *release) control(p *program, files []file) (control []file, err error) {
	var sums strings.Builder
	size := 0
	for _, f := range files {
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.text), f.name)
		size += (len(f.text) + 1023) / 1024
	}
	text, err := os.ReadFile(filepath.Join(r.root, "deploy/debian/control"))
	if err != nil {
		return nil, err
	}
	values := strings.NewReplacer("@VERSION@", r.debian(), "@ARCH@", p.arch, "@SIZE@", fmt.Sprint(size))
	control = []file{plain("./control", []byte(values.Replace(string(text)))),
		plain("./md5sums", []byte(sums.String())),
		plain("./conffiles", []byte("/etc/weir/weir.yaml\n"))}
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		text, err := os.ReadFile(filepath.Join(r.root, "deploy/debian", name))
		if err != nil {
			return nil, err
		}
		control = append(control, file{name: "./" + name, mode: 0o755, text: text})
	}
	return control, nil
}
