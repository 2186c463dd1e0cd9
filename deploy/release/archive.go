package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A file is one of an archive.
type file struct {
	name string // without a leading slash; a directory ends with one
	mode int64
	text []byte
	link string // the target of a symbolic link; "": it is none
}

// plain is a file that everybody may read.
func plain(name string, text []byte) file { return file{name: name, mode: 0o644, text: text} }

// archive is a tar file. All files belong to root.
func archive(files []file, modified time.Time) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.text)), ModTime: modified, Format: tar.FormatGNU,
			Uname: "root", Gname: "root", Typeflag: tar.TypeReg}
		switch {
		case f.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
		case f.name[len(f.name)-1] == '/':
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			panic(err) // a name or size that the format cannot have: a mistake in this program
		}
		w.Write(f.text)
	}
	w.Close()
	return b.Bytes()
}

// gzipped compresses, without a name or time in the header.
func gzipped(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level exists
	w.Write(text)
	w.Close()
	return b.Bytes()
}

// withDirs adds the directories of files, each before what lies in it.
func withDirs(files []file) (all []file) {
	made := map[string]bool{".": true}
	var add func(dir string)
	add = func(dir string) {
		if !made[dir] {
			add(path.Dir(dir))
			made[dir] = true
			all = append(all, file{name: dir + "/", mode: 0o755})
		}
	}
	for _, f := range files {
		add(path.Dir(f.name))
		all = append(all, f)
	}
	return all
}

// tree is the files of a directory below dir, with their names from dir on.
func tree(dir, below string) (files []file, err error) {
	err = filepath.WalkDir(filepath.Join(dir, below), func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		short, _ := filepath.Rel(dir, name) // it is below
		files = append(files, plain(filepath.ToSlash(short), text))
		return err
	})
	return files, err
}

// sorted sorts files by name.
func sorted(files []file) []file {
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files
}
