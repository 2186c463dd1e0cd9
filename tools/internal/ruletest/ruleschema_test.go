package ruletest_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/rules"
)

// refusedBySchema is what the schema says of a file, or nil.
func refusedBySchema(schema *jsonschema.Schema, text string) error {
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return err
	}
	return schema.Validate(value)
}

func TestSchemaOfRulesAcceptsWhatParseAccepts(t *testing.T) {
	_, schema := parsedSchema(t, rules.Schema())
	texts := map[string]string{"none": "rules: []",
		"files": "deny: {client.ip: {file: blocked.txt}, user: {file: a/b.txt, values: [ann, bob]}}\nallow: {user: {file: a.txt, values: ann}}\nrules: []"}
	for _, name := range []string{"good", "zoo", "everything"} {
		text, err := os.ReadFile("../../../rules/testdata/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	pages, err := filepath.Glob("../../../docs/reference/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatal(pages, err)
	}
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range yamlBlock.FindAllStringSubmatch(string(page), -1) {
			texts[fmt.Sprintf("%s, block %d", name, i)] = block[1]
		}
	}
	for name, text := range texts {
		if _, err := rules.Parse(name, []byte(text), someLists); err != nil {
			t.Error(err)
		}
		if err := refusedBySchema(schema, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// onlyParseKnows are the rules of the stories of errors that the schema takes, although
// Parse does not: what is wrong with them is not their shape.
var onlyParseKnows = map[string][]int{
	"anchors":           {0, 1, 2},                              // the schema sees what YAML made of them
	"bans":              {4, 8, 9},                              // times that do not fit each other, over 1000 refusals
	"candidates":        {2, 4, 6, 9},                           // the words of a limit, overrides beside it, costs
	"clients":           {1, 3, 5},                              // bits beyond a network's length, two spellings of one address, 010
	"costs-of-requests": {2, 3, 8, 10, 13},                      // more than the limit or the maximum, and names with blanks
	"costs":             {3, 4},                                 // numbers that YAML reads otherwise than they look
	"count-if":          {9, 10, 11, 12, 13, 14},                // what does not go with it
	"expressions":       {0},                                    // parentheses
	"fair":              {1, 3, 4, 5},                           // the words of a limit, components without weights
	"files":             {0, 1, 4, 5},                           // rules that are read from no file
	"groups":            {1},                                    // a schedule beside it
	"keys":              {1, 5, 6},                              // v4/33, one component twice, a name that the path lacks
	"layers":            {4, 5},                                 // leases of leases, a ban beside them
	"limits":            {0, 2, 3, 5, 6, 7, 8, 9, 11},           // the words of a limit are weir.ParseLimit's
	"lists":             {2, 4, 5},                              // a name that the path lacks, networks, one value twice
	"matches":           {4, 5, 6, 7},                           // segments of paths
	"once":              {3, 4, 6, 10, 11, 12},                  // ids that are not of clients, times, what does not go with it
	"overrides":         {0, 1, 2, 3, 4, 7, 11, 12, 13, 14, 15}, // what fits the rule's key
	"paths":             {0, 1, 2, 3},                           // segments of paths
	"percents":          {5},                                    // without a key
	"reserve":           {0, 1, 5, 6, 8, 9, 11},                 // a by or a match, classes that are there, conditions
	"routes-ambiguous":  {0},                                    // two routes for one request
	"sets":              {0, 1},                                 // rules that are read from no file
	"responses":         {7, 8},                                 // templates
	"schedules":         {3, 5, 10},                             // a day twice, an end that is the beginning, zones
	"sums":              {0, 1, 2, 3, 4, 6, 7, 8, 9, 11},        // the words of a sum
	"together":          {6, 7, 8},                              // values of metadata, limits beside unlimited
}

// TestSchemaOfRulesRefusesInvalidRules gives the schema each rule of the stories of errors, alone.
func TestSchemaOfRulesRefusesInvalidRules(t *testing.T) {
	_, schema := parsedSchema(t, rules.Schema())
	stories, err := filepath.Glob("../../../rules/testdata/errors/*.txt")
	if err != nil || len(stories) < 20 {
		t.Fatal(len(stories), err)
	}
	for _, story := range stories {
		text, err := os.ReadFile(story)
		if err != nil {
			t.Fatal(err)
		}
		input, _, _ := strings.Cut(strings.TrimPrefix(string(text), "-- rules.yaml --\n"), "-- errors --\n")
		var taken []int
		for i, one := range alone(input) {
			_, err := rules.Parse("f", []byte(one))
			if err != nil && refusedBySchema(schema, one) == nil {
				taken = append(taken, i)
			}
		}
		name := strings.TrimSuffix(filepath.Base(story), ".txt")
		if !slices.Equal(taken, onlyParseKnows[name]) {
			t.Errorf("%s: the schema takes the rules %v, which Parse refuses; listed are %v", name, taken, onlyParseKnows[name])
		}
	}
}

// alone are files with one rule each of a file, or the file if it cannot be taken apart.
func alone(text string) (files []string) {
	var file map[string]any
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		return []string{text}
	}
	list, ok := file["rules"].([]any)
	if !ok || len(file) > 1 && len(list) == 0 {
		return []string{text}
	}
	if len(file) > 1 {
		delete(file, "rules")
		files = append(files, encoded(file)+"rules: []\n")
	}
	for _, rule := range list {
		files = append(files, encoded(map[string]any{"rules": []any{rule}}))
	}
	return files
}

func encoded(value any) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// shapes are where mappings with known fields stand: %s is a field of it.
var shapes = map[string]string{
	"":          "rules: []\n%s: x",
	"rule":      "rules: [{name: a, limit: 1/1s, %s: x}]",
	"match":     "rules: [{name: a, limit: 1/1s, match: {%s: x}}]",
	"mcp":       "rules: [{name: a, limit: 1/1s, match: {path: /a, mcp: {%s: x}}}]",
	"window":    "rules: [{name: a, limit: 1/1s, schedule: {%s: x}}]",
	"listed":    "rules: [{name: a, limit: 1/1s, deny: {user: {%s: x}}}]",
	"override":  "rules: [{name: a, limit: 1/1s, key: user, overrides: [{%s: x}]}]",
	"cost":      "rules: [{name: a, limit: 1/1s, cost: {%s: x}}]",
	"stream":    "rules: [{name: a, limit: 1/1s, stream: {%s: x}}]",
	"count_if":  "rules: [{name: a, limit: 1/1s, count_if: {%s: x}}]",
	"ban":       "rules: [{name: a, limit: 1/1s, ban: {%s: x}}]",
	"candidate": "rules: [{name: a, limit: 1/1s, candidate: {%s: x}}]",
	"once":      "rules: [{name: a, limit: 1/1s, once: {%s: x}}]",
	"reserve":   "rules: [{name: a, limit: 1/1s, reserve: {%s: x}}]",
	"service":   "services: [{name: a, addresses: http://a, %s: x}]\nrules: []",
	"timeout":   "services: [{name: a, addresses: http://a, timeout: {%s: x}}]\nrules: []",
	"health":    "services: [{name: a, addresses: http://a, health: {%s: x}}]\nrules: []",
	"tls":       "services: [{name: a, addresses: https://a, tls: {%s: x}}]\nrules: []",
	"route":     "services: [{name: a, addresses: http://a}]\nroutes: [{name: a, service: a, %s: x}]\nrules: []",
	"response":  "rules: [{name: a, limit: 1/1s, response: {%s: x}}]",
}

var (
	yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	someLists = rules.WithFiles(func(string) ([]byte, error) { return []byte("192.0.2.1\n192.0.2.2\n"), nil })
)

var allowedFields = regexp.MustCompile(`unknown field "no_such_field"; allowed: (.*)`)

// TestSchemaOfRulesHasTheFieldsOfParse: what Parse says is allowed is what the schema has.
func TestSchemaOfRulesHasTheFieldsOfParse(t *testing.T) {
	document, schema := parsedSchema(t, rules.Schema())
	for name, shape := range shapes {
		object := document
		if name != "" {
			object = document["$defs"].(map[string]any)[name].(map[string]any)
		}
		text := fmt.Sprintf(shape, "no_such_field")
		_, err := rules.Parse("f", []byte(text))
		found := allowedFields.FindStringSubmatch(fmt.Sprint(err))
		if found == nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		properties := object["properties"].(map[string]any)
		want := slices.Sorted(slices.Values(strings.Split(found[1], ", ")))
		if got := slices.Sorted(maps.Keys(properties)); !slices.Equal(got, want) {
			t.Errorf("%q: the schema has %v, Parse %v", name, got, want)
		}
		if refusedBySchema(schema, text) == nil {
			t.Errorf("the schema takes any field of %q", name)
		}
	}
}

// TestSchemaOfRulesExplainsFields: an editor shows the description.
func TestSchemaOfRulesExplainsFields(t *testing.T) {
	document, _ := parsedSchema(t, rules.Schema())
	definitions := document["$defs"].(map[string]any)
	objects := map[string]any{"": document}
	maps.Copy(objects, definitions)
	for name, object := range objects {
		properties, _ := object.(map[string]any)["properties"].(map[string]any)
		for field, value := range properties {
			value := value.(map[string]any)
			ref, _ := value["$ref"].(string)
			behind, _ := definitions[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
			if value["description"] == nil && behind["description"] == nil {
				t.Errorf("%s.%s is not explained", name, field)
			}
		}
	}
}
