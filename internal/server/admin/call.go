package admin

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirproject/weir/internal/ruleset/ledger"
)

// A call is one request.
type call struct {
	request *http.Request
	who     string
	query   url.Values
	etag    int64 // of the answer; 0: none
	status  int   // of the answer; 0: 200
}

// readQuery accepts the operation's parameters, each once except value.
func (c *call) readQuery(known []string) (err error) {
	if c.query, err = url.ParseQuery(c.request.URL.RawQuery); err != nil {
		return refusef(http.StatusBadRequest, "the query cannot be read: %v", err)
	}
	for name, values := range c.query {
		switch {
		case !slices.Contains(known, name):
			return refusef(http.StatusBadRequest, "there is no parameter %.80q here; there are: %s", name,
				orNone(known))
		case len(values) > 1 && name != "value":
			return refusef(http.StatusBadRequest, "the parameter %s is given twice", name)
		}
	}
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// by returns the author of a change, and the reason.
func (c *call) by() ledger.Author { return ledger.Author{Who: c.who, Why: c.query.Get("why")} }

func (c *call) name() string { return c.request.PathValue("name") }

// flag returns a parameter that is true or false.
func (c *call) flag(name string) (bool, error) {
	switch text := c.query.Get(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, refusef(http.StatusBadRequest, "%s is %.80q; allowed: true or false", name, text)
	}
}

// number returns a parameter that is a whole number, or otherwise if it is missing.
func (c *call) number(name string, otherwise int64) (int64, error) {
	text := c.query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != text {
		return 0, refusef(http.StatusBadRequest, "%s is %.80q; allowed: a whole number from 1", name, text)
	}
	return n, nil
}

// intent returns whether the request is a dry run, and otherwise the revision that the author has
// read.
func (c *call) intent() (dry bool, seen int64, err error) {
	dry, err = c.flag("dry_run")
	if err == nil && !dry {
		seen, err = c.seen()
	}
	return dry, seen, err
}

// seen returns the revision that the author has read (RFC 9110, sections 13.1.1 and 13.1.2): 0 with
// If-None-Match: *. A request without either is refused, because an unconditional write overwrites
// other people's changes.
func (c *call) seen() (int64, error) {
	match, none := c.request.Header.Values("If-Match"), c.request.Header.Values("If-None-Match")
	switch {
	case len(match) == 1 && len(none) == 0:
		text := strings.Trim(match[0], `"`)
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 &&
			match[0] == `"`+strconv.FormatInt(n, 10)+`"` {
			return n, nil
		}
		return 0, refusef(http.StatusBadRequest,
			`If-Match is %.80q; allowed: the ETag of what you have read, such as "12"`, match[0])
	case len(none) == 1 && len(match) == 0 && none[0] == "*":
		return 0, nil
	case len(none)+len(match) > 0:
		return 0, refusef(http.StatusBadRequest,
			"allowed: one If-Match with the ETag of what you have read, or If-None-Match: * for what is new")
	}
	return 0, refusef(http.StatusPreconditionRequired,
		"say which revision you have seen: If-Match with the ETag of GET, or If-None-Match: * for what is new")
}

// body reads the body, which must have one of the media types.
func (c *call) body(most int, kinds ...string) (text []byte, err error) {
	kind, _, err := mime.ParseMediaType(c.request.Header.Get("Content-Type"))
	if err != nil || !slices.Contains(kinds, kind) {
		return nil, refusef(http.StatusUnsupportedMediaType, "Content-Type is %.80q; allowed: %s",
			c.request.Header.Get("Content-Type"), strings.Join(kinds, ", "))
	}
	if coding := c.request.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, refusef(http.StatusUnsupportedMediaType, "Content-Encoding is %.80q; allowed: none", coding)
	}
	text, err = io.ReadAll(io.LimitReader(c.request.Body, int64(most)+1))
	if err != nil {
		return nil, refusef(http.StatusBadRequest, "the body could not be read to its end")
	}
	if len(text) > most {
		return nil, refusef(http.StatusRequestEntityTooLarge, "the body has over %d bytes", most)
	}
	return text, nil
}

// yamlKinds are the media types of a rule: JSON is YAML too.
var yamlKinds = []string{"application/yaml", "application/json"}

// document parses a JSON body strictly: duplicate and unknown names are errors.
func (c *call) document(into any) error {
	text, err := c.body(ledger.MaxDocument, "application/json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into, json.RejectUnknownMembers(true),
		json.MatchCaseInsensitiveNames(false)); err != nil {
		return refusef(http.StatusBadRequest, "the body is malformed: %s",
			strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// write sends an answer.
func write(w http.ResponseWriter, c *call, answer any) {
	text, isText := answer.(jsontext.Value)
	if !isText {
		var err error
		if text, err = json.Marshal(answer, jsontext.WithIndent("  "), json.Deterministic(true)); err != nil {
			writeProblem(w, err)
			return
		}
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if c.etag > 0 {
		h.Set("ETag", fmt.Sprintf("%q", strconv.FormatInt(c.etag, 10)))
	}
	if c.status != 0 {
		w.WriteHeader(c.status)
	}
	_, _ = w.Write(append(text, '\n')) // an error means that the connection is gone
}
