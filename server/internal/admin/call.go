package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/server/internal/web"
)

// A call is one request.
type call struct {
	request *http.Request
	who     string
	query   url.Values
	seen    int64 // the revision that the author has read; 0: the entry is new, or it is a dry run
	etag    int64 // of the answer; 0: none
}

// readQuery accepts the operation's parameters, each once except value.
func (c *call) readQuery(known []string) (err error) {
	if c.query, err = url.ParseQuery(c.request.URL.RawQuery); err != nil {
		return web.Refuse(http.StatusBadRequest, "the query cannot be read: %v", err)
	}
	for name, values := range c.query {
		allowed, text := "", values[0]
		switch schema := parameter(name, "query").Schema; {
		case !slices.Contains(known, name):
			if len(known) == 0 {
				known = []string{"none"}
			}
			return web.Refuse(http.StatusBadRequest, "there is no parameter %.80q here; there are: %s", name,
				strings.Join(known, ", "))
		case len(values) > 1 && name != "value":
			return web.Refuse(http.StatusBadRequest, "the parameter %s is given twice", name)
		case schema["enum"] != nil && text != "true" && text != "false":
			allowed = "true or false"
		case schema["type"] == "integer" && c.number(name, 0) == 0 && (text != "0" || schema["minimum"] != 0):
			allowed = fmt.Sprint("a whole number from ", schema["minimum"])
		}
		if allowed != "" && text != "" {
			return web.Refuse(http.StatusBadRequest, "%s is %.80q; allowed: %s", name, text, allowed)
		}
	}
	return nil
}

// by returns the author of a change, and the reason.
func (c *call) by() ledger.Author { return ledger.Author{Who: c.who, Why: c.query.Get("why")} }

func (c *call) name() string { return c.request.PathValue("name") }

// flag returns a parameter that is true or false.
func (c *call) flag(name string) bool { return c.query.Get(name) == "true" }

// number returns a parameter that is a whole number from 1, or otherwise if it is missing or another
// text.
func (c *call) number(name string, otherwise int64) int64 {
	text := c.query.Get(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != text {
		return otherwise
	}
	return n
}

// readVersion reads If-Match and If-None-Match (RFC 9110, sections 13.1.1 and 13.1.2). A write without
// either is refused, because it would overwrite other people's changes.
func (c *call) readVersion() error {
	if c.flag("dry_run") {
		return nil
	}
	match, none := c.request.Header.Values("If-Match"), c.request.Header.Values("If-None-Match")
	switch {
	case len(match) == 1 && len(none) == 0:
		c.seen, _ = strconv.ParseInt(strings.Trim(match[0], `"`), 10, 64)
		if c.seen > 0 && match[0] == web.ETag(c.seen) {
			return nil
		}
		return web.Refuse(http.StatusBadRequest,
			`If-Match is %.80q; allowed: the ETag of what you have read, such as "12"`, match[0])
	case len(none) == 1 && len(match) == 0 && none[0] == "*":
		return nil
	case len(none)+len(match) > 0:
		return web.Refuse(http.StatusBadRequest,
			"allowed: one If-Match with the ETag of what you have read, or If-None-Match: * for what is new")
	}
	return web.Refuse(http.StatusPreconditionRequired,
		"say which revision you have seen: If-Match with the ETag of GET, or If-None-Match: * for what is new")
}

// rule reads the text of a rule or a file. JSON is YAML too.
func (c *call) rule(most int64) ([]byte, error) {
	var b web.Body
	err := b.ReadAll(c.request, most, "application/yaml", "application/json")
	return b.Bytes(), err
}

// document parses a JSON body strictly: duplicate and unknown names are errors.
func (c *call) document(into any) error {
	var b web.Body
	if err := b.ReadAll(c.request, ledger.MaxDocument, "application/json"); err != nil {
		return err
	}
	err := json.Unmarshal(b.Bytes(), into, json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(false))
	if err != nil {
		return web.Refuse(http.StatusBadRequest, "the body is malformed: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// write sends an answer.
func (c *call) write(w http.ResponseWriter, answer any) {
	text, is := answer.(*rendered)
	var err error
	if !is {
		text = new(rendered)
		text.plain, err = json.Marshal(answer, jsontext.WithIndent("  "), json.Deterministic(true))
		text.plain = append(text.plain, '\n')
		text.zipped = web.Gzip(text.plain)
	}
	if err != nil {
		p, _ := problemOf(err)
		p.Write(w)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if c.etag > 0 {
		h.Set("ETag", web.ETag(c.etag))
	}
	web.WriteCompressed(w, c.request, text.plain, text.zipped)
}
