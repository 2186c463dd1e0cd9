package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir/internal/static"
	"github.com/weirproject/weir/server/internal/web"
)

// policy lets a page load scripts and styles of this server, ask this server, and no other. Scripts and styles
// in the page itself are refused too, so that a text which a client put into a key cannot become one.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const staticPrefix = Path + "/static/"

// routes are the first segments of the pages' paths, which all have the same document; "" is the overview.
var routes = []string{"", "rules", "key", "requests", "health", "services", "changes"}

// A page is a file as it is sent.
type page struct {
	kind, tag   string
	plain, gzip []byte
}

// newPages makes the handler of Path and of the paths below it. Files are compressed at the first request.
func newPages() http.Handler {
	files := sync.OnceValue(load)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			web.NotAllowed(r, "GET, HEAD").Write(w)
			return
		}
		name, isFile := strings.CutPrefix(r.URL.Path, staticPrefix)
		if !isFile {
			first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, Path), "/"), "/")
			if name = "index.html"; !slices.Contains(routes, first) {
				name = ""
			}
		}
		p := files()[name]
		if p == nil {
			web.Refuse(http.StatusNotFound, "there is no page %.80q; %s is the first", r.URL.Path, Path).Write(w)
			return
		}
		p.write(w, r)
	})
}

// load reads the files, by their path. The only error would be a file that cannot be read, which
// embedded ones can.
func load() map[string]*page {
	files := make(map[string]*page)
	_ = fs.WalkDir(static.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := static.Files.ReadFile(name)
		files[name] = newPage(name, text)
		return err
	})
	return files
}

func newPage(name string, text []byte) *page {
	var small bytes.Buffer
	z := gzip.NewWriter(&small)
	_, _ = z.Write(text) // a buffer takes everything
	_ = z.Close()
	hash := sha256.Sum256(text)
	p := &page{kind: mime.TypeByExtension(path.Ext(name)), tag: hex.EncodeToString(hash[:8]), plain: text,
		gzip: small.Bytes()}
	if path.Ext(name) == ".js" {
		p.kind = "text/javascript; charset=utf-8" // whatever this machine's table of types says
	}
	return p
}

// write sends the page. A browser asks each time whether it changed, so that an update of weir never mixes files of
// two versions.
func (p *page) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", p.kind)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Encoding")
	text, tag := p.plain, p.tag
	if web.AcceptsGzip(r) {
		text, tag = p.gzip, p.tag+"-gzip"
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", fmt.Sprintf("%q", tag))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}
