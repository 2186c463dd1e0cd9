package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/api"
)

var until = time.Date(2030, 1, 1, 10, 0, 0, 0, time.FixedZone("", 3600))

// excepting is a handler of some rules with what operators decided.
func excepting(t testing.TB) http.Handler {
	t.Helper()
	file, err := rules.Parse("rules.yaml", []byte(someRules))
	if err != nil {
		t.Fatal(err)
	}
	file.Exceptions = []rules.Exception{
		{ID: "block-1", Kind: rules.Blocked, Values: []string{"192.0.2.0/24"}, Until: until, Why: `"scanning"`},
		{ID: "override-1", Kind: rules.Overridden, Rule: "login", Values: []string{"198.51.100.7"},
			Limit: []string{"fixed_window 9/1h"}, Until: until},
		{ID: "block-2", Kind: rules.Blocked, Rule: "tried", Values: []string{"198.51.100.7"}, Until: until,
			Why: "tried out"},
	}
	set, err := rules.Compile(file)
	if err != nil || len(set.Unfit()) > 0 {
		t.Fatal(err, set.Unfit())
	}
	g := gatetest.Of(t, memstore.New(), set)
	h, err := api.New(g, api.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// exceptions asks about whom they are for.
func exceptions(s *server) {
	s.t.Helper()
	const blocked = `{"request":{"path":"/x","client":"192.0.2.7"}`
	const told = `"exceptions":[{"id":"block-1","kind":"block","until":"2030-01-01T09:00:00Z","why":"\"scanning\""}]`
	const other = `{"request":{"method":"POST","path":"/login","client":"198.51.100.7"}}`
	for path, body := range map[string]string{"/v1/peek": blocked + `}`, "/v1/decide": blocked + `,"dry_run":true}`} {
		if a := s.post(path, body); a.at("outcome") != "denied" || !strings.Contains(a.text, told) {
			s.t.Errorf("%s: %s", path, a.text)
		}
	}
	s.post("/v1/peek", other).has(s.t, 200, "limit", "fixed_window 9/1h", "exceptions.0.id", "override-1",
		"exceptions.0.rule", "login",
		"exceptions.1.id", "block-2", "exceptions.1.why", "tried out")
	batch := s.post("/v1/peek", `{"requests":[`+login+`,`+other+`]}`)
	batch.has(s.t, 200, "answers.0.exceptions", nil, "answers.1.exceptions.0.id", "override-1")
	if a := s.post("/v1/decide", blocked+`}`); strings.Contains(a.text, "exceptions") { // who only wants an answer
		s.t.Errorf("decide tells %s", a.text)
	}
}

func TestPeekListsExceptions(t *testing.T) { exceptions(serve(t, excepting(t))) }
