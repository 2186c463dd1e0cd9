// Package housetest is tests of the house itself, each with its reason: who may import
// whom, how long a function may be, whether what the documentation shows runs. It has no
// code of its own but what these tests share.
package housetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// root is the repository, as tests of this package see it.
const root = "../.."

// files are the paths of the repository's files, from its root, that end in one of the
// suffixes. What git and the go tool leave alone is left alone here.
func files(suffixes ...string) (paths []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".ci" {
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
