package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// modules are the modules of others that are compiled into a program, as the program itself says.
func (p *program) modules() (list []*debug.Module, of *debug.BuildInfo, err error) {
	if of, err = buildinfo.Read(bytes.NewReader(p.binary)); err != nil {
		return nil, nil, err
	}
	for _, m := range of.Deps {
		if !strings.HasPrefix(m.Path, "github.com/weirproject/weir") {
			list = append(list, m)
		}
	}
	return list, of, nil
}

// bom is the list of a program's parts, in CycloneDX.
func bom(p *program, r *release) ([]byte, error) {
	modules, info, err := p.modules()
	if err != nil {
		return nil, err
	}
	b := cdx.NewBOM()
	main := cdx.Component{BOMRef: "weir", Type: cdx.ComponentTypeApplication, Name: "weir", Version: r.version,
		PackageURL: "pkg:golang/github.com/weirproject/weir/server@v" + r.version}
	b.Metadata = &cdx.Metadata{Timestamp: r.modified.Format(time.RFC3339), Component: &main}
	std := cdx.Component{BOMRef: "std", Type: cdx.ComponentTypeLibrary, Name: "std",
		Version: strings.TrimPrefix(info.GoVersion, "go")}
	std.PackageURL = "pkg:golang/std@" + std.Version
	parts, refs := []cdx.Component{std}, []string{"std"}
	for _, m := range modules {
		url := "pkg:golang/" + m.Path + "@" + m.Version
		parts = append(parts, cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.Path,
			Version: m.Version, PackageURL: url, Properties: &[]cdx.Property{{Name: "go.sum", Value: m.Sum}}})
		refs = append(refs, url)
	}
	b.Components = &parts
	b.Dependencies = &[]cdx.Dependency{{Ref: "weir", Dependencies: &refs}}
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	err = encoder.Encode(b)
	return out.Bytes(), err
}

var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)`)

// licences are the texts that the licences of the modules ask to be handed on with a program.
func (r *release) licences(p *program) ([]byte, error) {
	modules, _, err := p.modules()
	if err != nil {
		return nil, err
	}
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		args = append(args, m.Path+"@"+m.Version)
	}
	said, err := r.run("go", args...)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("weir contains parts of these modules, under these licences.\n")
	for d := json.NewDecoder(strings.NewReader(said)); d.More(); {
		var m struct{ Path, Version, Dir string }
		if err := d.Decode(&m); err != nil {
			return nil, err
		}
		if err := licencesOf(&b, m.Path+" "+m.Version, m.Dir); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// licencesOf adds the texts of one module.
func licencesOf(b *bytes.Buffer, module, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !licenceName.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(b, "\n==== %s: %s\n\n%s\n", module, e.Name(), bytes.TrimSpace(text))
	}
	if !found {
		return fmt.Errorf("%s has no file with its licence", module)
	}
	return nil
}
