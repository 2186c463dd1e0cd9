// Package housetest tests the rules of the code base, each with its reason: allowed imports,
// the length of functions, and that the examples in the documentation run. Its own code is
// shared by these tests.
package housetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// root is the path of the repository from this package.
const root = "../.."

// files are the paths of the repository's files, from its root, that end in one of the
// suffixes, without those that git and the go tool ignore.
func files(suffixes ...string) (paths []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".ci" {
			return fs.SkipDir
		}
		if path == filepath.Join(root, "site") { // what make site has built
			return fs.SkipDir
		}
		if entry.Name() == ".git" { // a file in a linked worktree: it names the repository's path
			return nil
		}
		for _, suffix := range suffixes {
			if entry.Type().IsRegular() && strings.HasSuffix(path, suffix) {
				name, err := filepath.Rel(root, path)
				paths = append(paths, filepath.ToSlash(name))
				return err
			}
		}
		return nil
	})
	return paths, err
}

// read is a file of the repository.
func read(path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	return string(text), err
}
