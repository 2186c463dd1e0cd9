// Package page writes the report of a backtest as one HTML file, which loads no other file and works offline: a static
// page with the report as JSON, which its script draws.
package page

import (
	"crypto/sha256"
	_ "embed" // of the document
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirproject/weir/internal/static"
	"github.com/weirproject/weir/tools/internal/backtest"
)

//go:embed page.html
var document string

// load returns the page around a report.
var load = sync.OnceValues(func() (page [2]string, err error) {
	script, err := bundled(static.Files, "file.js")
	style, e := static.Files.ReadFile("style.css")
	icon, e2 := static.Files.ReadFile("icon.svg")
	whole := strings.NewReplacer("SCRIPT_HASH", hash(script), "STYLE_HASH", hash(string(style)),
		"ICON", base64.StdEncoding.EncodeToString(icon), "STYLE", string(style), "SCRIPT", script).Replace(document)
	page[0], page[1], _ = strings.Cut(whole, "REPORT")
	return page, errors.Join(err, e, e2)
})

// Write writes the page. Texts of the log may be anything: the report is JSON for the script, which makes no markup of
// it, and the page's policy runs that script only and refuses all requests.
func Write(w io.Writer, r *backtest.Report) error {
	page, err := load()
	if err != nil {
		return err
	}
	var data strings.Builder
	if err := json.MarshalWrite(&data, r, json.Deterministic(true), jsontext.AllowInvalidUTF8(true),
		jsontext.EscapeForHTML(true), jsontext.EscapeForJS(true)); err != nil {
		return err
	}
	_, err = io.WriteString(w, page[0]+data.String()+page[1])
	return err
}

// hash is the text of a Content-Security-Policy for the one script or style that it permits.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
