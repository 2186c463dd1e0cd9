package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// overlaid is a file of rules about descriptors with an overlay.
func overlaid(t *testing.T, overlay string) (file *rules.File, unmet []string) {
	t.Helper()
	file, err := rules.Parse("f.yaml", []byte(`
rules:
  - {name: a1, match: {service: edge, descriptor_keys: [a, b]}, limit: fixed_window 10/1m epoch}
  - {name: path, match: {service: edge, descriptor_keys: [path]}, limit: "fixed_window 10/1m epoch", mode: shadow}
  - {name: web, match: {service: web, descriptor_keys: [a]}, algorithm: fixed_window, limit: 10/1m epoch, response: {status: 503}}
  - {name: slots, match: {service: web, descriptor_keys: [slots]}, limit: concurrency 5 ttl 30s}
  - {name: none, match: {service: web, descriptor_keys: [none]}, limit: none}
  - {name: http, match: {path: /}, limit: 10/1m}
  - {name: service, match: {service: edge}, limit: 10/1m}
overlay:
`+overlay))
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(file.Rules)
	out, unmet := file.Overlaid(nil)
	if _, err := rules.Compile(out); err != nil {
		t.Error(err)
	}
	for i := range before {
		if a, b := &before[i], &file.Rules[i]; a.Mode != b.Mode || !slices.Equal(a.Limit, b.Limit) {
			t.Errorf("the file has changed: %+v", b)
		}
	}
	if again, _ := out.Overlaid(nil); strings.Join(changed(again), " ") != strings.Join(changed(out), " ") {
		t.Errorf("applied twice it is %v, once %v", changed(again), changed(out))
	}
	return out, unmet
}

// changed are the rules in a few words.
func changed(file *rules.File) (list []string) {
	for i := range file.Rules {
		r := &file.Rules[i]
		text := r.Name + ":" + strings.Join(r.Limit, ",")
		for _, word := range []string{r.Algorithm, string(r.Mode), string(r.OnStoreError), r.Ban.For} {
			if word != "" {
				text += "," + word
			}
		}
		list = append(list, strings.ReplaceAll(text, " ", "_"))
	}
	return list
}

func TestOverlaySetsFieldsOfTheRulesThatItMeets(t *testing.T) {
	for overlay, want := range map[string]string{
		"  - {domain: edge, descriptor: [a, b], mode: shadow}":                 "a1:10/1m_epoch,fixed_window,shadow",
		"  - {domain: edge, descriptor: \"a\", mode: shadow}":                  "none meets",
		"  - {domain: edge, descriptor: [a, b, c], mode: shadow}":              "none meets",
		"  - {domain: edge, descriptor: [a, \"**\"], mode: shadow}":            "a1:10/1m_epoch,fixed_window,shadow",
		"  - {domain: edge, descriptor: [a, b, \"**\"], mode: shadow}":         "a1:10/1m_epoch,fixed_window,shadow",
		"  - {domain: edge, descriptor: \"p*t*\", mode: enforce}":              "path:10/1m_epoch,fixed_window,enforce",
		"  - {domain: edge, descriptor: \"p*tt\", mode: enforce}":              "none meets",
		"  - {domain: edge, on_store_error: deny}":                             "a1:10/1m_epoch,fixed_window,deny path:10/1m_epoch,fixed_window,shadow,deny",
		"  - {domain: \"*\", descriptor: [a, \"**\"], algorithm: sliding_log}": "a1:10/1m,sliding_log web:10/1m,sliding_log",
		"  - {domain: edge, descriptor: path, algorithm: fixed_window}":        "path:10/1m_epoch,fixed_window,shadow",
		"  - {domain: web, algorithm: token_bucket}":                           "web:10/1m,token_bucket: overlay",
		"  - {domain: edge, mode: shadow}\n  - {domain: edge, ban: {after: 3 refusals within 1m, for: 1h}}\n  - {domain: edge, descriptor: [a, b], mode: enforce}": "a1:10/1m_epoch,fixed_window,enforce,1h path:10/1m_epoch,fixed_window,shadow,1h",
		"  - {domain: edge, cost: 20, mode: shadow}": ": ",
	} {
		out, unmet := overlaid(t, overlay)
		plain, _ := overlaid(t, "  - {domain: other, mode: shadow}")
		got := slices.DeleteFunc(changed(out), func(one string) bool { return slices.Contains(changed(plain), one) })
		text := strings.Join(got, " ")
		if len(unmet) > 0 {
			text += ": " + strings.Join(unmet, "; ")
		}
		met := want != "none meets" && strings.HasPrefix(text, strings.Split(want, ": ")[0]) && (len(unmet) > 0) == strings.Contains(want, ": ")
		if met || want == "none meets" && len(got) == 0 && len(unmet) == 1 && strings.HasSuffix(unmet[0], "no rule has this domain and descriptor") {
			continue
		}
		t.Errorf("%s:\n%s\nwant\n%s", overlay, text, want)
	}
}

// TestOverlayKeepsWhatItDoesNotSet: fields of a mapping belong together.
func TestOverlayKeepsWhatItDoesNotSet(t *testing.T) {
	out, _ := overlaid(t, "  - {domain: web, descriptor: a, message: full, candidate: {limit: 20/1m}}")
	web := &out.Rules[2]
	if web.Response.Status != 503 || web.Message[0].Text != "full" || len(web.Candidate.Limit) != 1 || web.Algorithm != "fixed_window" {
		t.Errorf("%+v", web)
	}
}

// TestElementsThatFitTogether apply in any case; one that does not fit leaves the others.
func TestElementsThatFitTogether(t *testing.T) {
	for overlay, want := range map[string]string{
		"  - {domain: web, descriptor: a, cost: 20, mode: shadow}\n  - {domain: web, descriptor: a, cost: 2}":                                       "10/1m epoch ",
		"  - {domain: web, descriptor: a, cost: 20, mode: shadow}\n  - {domain: web, descriptor: a, algorithm: sliding_log}":                        "10/1m ; overlay of domain web, descriptor a (f.yaml:11): rule web: ",
		"  - {domain: web, descriptor: a, mode: shadow}\n  - {domain: web, descriptor: a, charge: full}\n  - {domain: web, algorithm: sliding_log}": "10/1m shadow; overlay of domain web (f.yaml:13): rule slots has the limit ",
	} {
		out, unmet := overlaid(t, overlay)
		web := &out.Rules[2]
		if got := strings.Join(append([]string{web.Limit[0] + " " + string(web.Mode)}, unmet...), "; "); !strings.HasPrefix(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", overlay, got, want)
		}
	}
}
