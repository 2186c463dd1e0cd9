package page

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// A bundle makes one script of modules, because a page that is a file cannot load others. It understands the forms of
// import and export that the console's scripts have, and refuses all others.
type bundle struct {
	files fs.FS
	out   strings.Builder
	done  map[string]bool
}

// bundled returns a script that runs a module, with all that it imports.
func bundled(files fs.FS, entry string) (string, error) {
	b := &bundle{files: files, done: make(map[string]bool)}
	b.out.WriteString("'use strict';const $={};\n")
	if err := b.add(entry); err != nil {
		return "", err
	}
	script := b.out.String()
	if strings.Contains(strings.ToLower(script), "</script") || strings.Contains(script, "<!--") {
		return "", errors.New("a script has text that ends its element, or begins a comment of HTML")
	}
	return script, nil
}

var (
	importLine  = regexp.MustCompile(`^import (\{[^}]*\}|\w+) from '([./\w-]+)';$`)
	exportLine  = regexp.MustCompile(`^export ((?:const|let|class|(?:async )?function) (\w+).*)$`)
	defaultLine = regexp.MustCompile(`^export default (.*)$`)
	exportList  = regexp.MustCompile(`^(.*;)export\{([^}]*)\};?$`)
	otherForm   = regexp.MustCompile(`^(import|export)\b`)
)

// add adds a module after its imports. Comments and indents are left out.
func (b *bundle) add(name string) error {
	if b.done[name] {
		return nil
	}
	b.done[name] = true
	text, err := fs.ReadFile(b.files, name)
	if err != nil {
		return err
	}
	var body strings.Builder
	var names []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "//") {
			continue
		}
		if found := importLine.FindStringSubmatch(line); found != nil {
			module := path.Join(path.Dir(name), found[2])
			if err := b.add(module); err != nil {
				return err
			}
			line = imported(found[1], module)
		} else if found := exportLine.FindStringSubmatch(line); found != nil {
			line = found[1]
			names = append(names, found[2])
		} else if found := defaultLine.FindStringSubmatch(line); found != nil {
			line = "const $default = " + found[1]
			names = append(names, "default: $default")
		} else if found := exportList.FindStringSubmatch(line); found != nil {
			line = found[1]
			for one := range strings.SplitSeq(found[2], ",") {
				inside, outside, _ := strings.Cut(one, " as ")
				names = append(names, outside+": "+inside)
			}
		}
		if otherForm.MatchString(line) {
			return fmt.Errorf("%s: %.80q is no form of import or export that can be bundled", name, line)
		}
		body.WriteString(line + "\n")
	}
	fmt.Fprintf(&b.out, "$[%q]=(()=>{\n%sreturn {%s};})();\n", name, body.String(), strings.Join(names, ", "))
	return nil
}

// imported is the statement for an import, which the module has run before.
func imported(names, module string) string {
	if strings.HasPrefix(names, "{") {
		return fmt.Sprintf("const %s = $[%q];", strings.ReplaceAll(names, " as ", ": "), module)
	}
	return fmt.Sprintf("const %s = $[%q].default;", names, module)
}
