package ruleimport

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/internal/ruleset/redissource"
	"github.com/weirproject/weir/rules"
)

// A command is a line of redis-cli.
type command struct {
	file  string
	line  int
	words []string
}

// prompt is what redis-cli writes before a command, or a shell before redis-cli.
var prompt = regexp.MustCompile(`^(\S+> |redis-cli )`)

// commands are those of files. A # begins a comment.
func (j *job) commands(texts ...Text) (list []command) {
	for _, t := range texts {
		number := 0
		for line := range strings.Lines(string(t.Data)) {
			number++
			line = prompt.ReplaceAllString(strings.TrimSpace(line), "")
			if line == "" || line[0] == '#' {
				continue
			}
			words, ok := splitCommand(line)
			if !ok {
				j.wrong(t.Name, number, "quotes do not end; allowed: a command of redis-cli in each line")
				continue
			}
			list = append(list, command{t.Name, number, words})
		}
	}
	return list
}

// splitCommand splits a line as redis-cli does: with texts in quotes, and escapes between double ones.
func splitCommand(line string) (words []string, ok bool) {
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		end := strings.IndexAny(line, " \t")
		word := line
		switch {
		case line[0] == '"':
			quoted, err := strconv.QuotedPrefix(line)
			if err != nil {
				return nil, false
			}
			end = len(quoted)
			if word, err = strconv.Unquote(quoted); err != nil {
				return nil, false
			}
		case line[0] == '\'':
			close := strings.IndexByte(line[1:], '\'')
			if close < 0 {
				return nil, false
			}
			end = close + 2
			word = line[1 : close+1]
		case end >= 0:
			word = line[:end]
		default:
			end = len(line)
		}
		words = append(words, word)
		line = line[end:]
	}
	return words, true
}

// redisCell reads CL.THROTTLE KEY MAX_BURST COUNT PERIOD [QUANTITY]. The beginning of a key, up to a colon, is the
// route of a rule; other numbers of one of its keys are an override.
func (j *job) redisCell() {
	type cell struct {
		spec rules.Spec
		at   command
		seen map[string]string // the limit of each key
	}
	var cells []*cell
	for _, c := range j.commands(j.texts...) {
		if !strings.EqualFold(c.words[0], "CL.THROTTLE") {
			j.lacks(c.file, c.line, "nothing, if it limits nothing", "command %.80s", c.words[0])
			continue
		}
		limit, cost, ok := j.throttle(c)
		if !ok {
			continue
		}
		route, _, _ := strings.Cut(c.words[1], ":")
		i := slices.IndexFunc(cells, func(one *cell) bool { return one.spec.Match.Route[0] == route })
		if i < 0 {
			spec := rules.Spec{Name: route, Description: origin(c.file, c.line), Key: []string{"descriptor.key"},
				Match: rules.Match{Route: []string{route}}, Limit: []string{limit}}
			spec.Cost.Units = cost
			cells = append(cells, &cell{spec, c, map[string]string{c.words[1]: limit}})
			continue
		}
		one := cells[i]
		if one.spec.Cost.Units != cost {
			j.lacks(c.file, c.line, "let callers state the cost", "quantity %d, beside %d of the same keys",
				max(1, cost), max(1, one.spec.Cost.Units))
			one.spec.Cost.Units = 0
		}
		before, known := one.seen[c.words[1]]
		one.seen[c.words[1]] = limit
		switch {
		case known && before != limit:
			j.lacks(c.file, c.line, "use one limit for a key", "key %.80q with %s, before with %s", c.words[1], limit,
				before)
		case !known && limit != one.spec.Limit[0]:
			override := rules.Override{Key: []string{listed.Replace(c.words[1])}, Limit: []string{limit}}
			one.spec.Overrides = append(one.spec.Overrides, override)
		}
	}
	for _, one := range cells {
		j.add(one.at.file, one.at.line, one.spec)
	}
}

// throttle is the limit of a command. A key has MAX_BURST requests beyond the first.
func (j *job) throttle(c command) (limit string, cost int64, ok bool) {
	if len(c.words) < 5 || len(c.words) > 6 || c.words[1] == "" {
		j.wrong(c.file, c.line, "CL.THROTTLE has %d arguments; allowed: KEY MAX_BURST COUNT PERIOD [QUANTITY]",
			len(c.words)-1)
		return "", 0, false
	}
	var numbers [4]int64
	for i, text := range c.words[2:] {
		value, err := strconv.ParseInt(text, 10, 64)
		if least := int64(min(i, 1)); err != nil || value < least || value > maxRate {
			j.wrong(c.file, c.line, "%s is %.80q; allowed: a whole number from %d to %d",
				[]string{"MAX_BURST", "COUNT", "PERIOD", "QUANTITY"}[i], text, least, maxRate)
			return "", 0, false
		}
		numbers[i] = value
	}
	if numbers[3] > 1 {
		cost = numbers[3]
	}
	return fmt.Sprintf("%d/%ds burst %d", numbers[1], numbers[2], numbers[0]+1), cost, true
}

// redisHash reads hashes of rules: commands, or JSON with an object of fields by key.
func (j *job) redisHash() {
	hashes := make(map[string]map[string]string)
	places := make(map[string]command)
	var keys []string
	set := func(c command, key string, pairs []string) {
		if hashes[key] == nil {
			hashes[key], places[key] = make(map[string]string), c
			keys = append(keys, key)
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			hashes[key][pairs[i]] = pairs[i+1]
		}
	}
	for _, t := range j.texts {
		if text := strings.TrimSpace(string(t.Data)); strings.HasPrefix(text, "{") {
			j.jsonHashes(t, set)
			continue
		}
		for _, c := range j.commands(t) {
			switch name := strings.ToUpper(c.words[0]); {
			case (name == "HSET" || name == "HMSET") && len(c.words) >= 4 && len(c.words)%2 == 0:
				set(c, c.words[1], c.words[2:])
			case name == "DEL" && len(c.words) > 1:
				for _, key := range c.words[1:] {
					delete(hashes, key)
				}
			case name == "PUBLISH" && len(c.words) == 3 && c.words[2] == "RELOAD_ALL":
			default:
				j.lacks(c.file, c.line, "write it as HSET KEY FIELD VALUE …", "command %.80s",
					strings.Join(c.words, " "))
			}
		}
	}
	for _, key := range slices.Compact(keys) {
		if fields := hashes[key]; fields != nil {
			j.hash(places[key], key, fields)
			delete(hashes, key)
		}
	}
}

// jsonHashes reads {"KEY": {"FIELD": VALUE, …}, …}.
func (j *job) jsonHashes(t Text, set func(c command, key string, pairs []string)) {
	decoder := json.NewDecoder(strings.NewReader(string(t.Data)))
	decoder.UseNumber()
	var all map[string]map[string]any
	if err := decoder.Decode(&all); err != nil {
		j.wrong(t.Name, 1, "not JSON: %v; allowed: an object with the fields of each key", err)
		return
	}
	for _, key := range sortedKeys(all) {
		var pairs []string
		for _, field := range sortedKeys(all[key]) {
			pairs = append(pairs, field, fmt.Sprint(all[key][field]))
		}
		line := 1 + strings.Count(string(t.Data[:max(0, strings.Index(string(t.Data), strconv.Quote(key)))]), "\n")
		set(command{file: t.Name, line: line}, key, pairs)
	}
}

// hash adds what a hash says. A disabled rule is read as if it were not.
func (j *job) hash(at command, key string, fields map[string]string) {
	h := redissource.ReadHash(redissource.DefaultPrefix, key, fields)
	for _, p := range append(h.Problems, h.Ignored...) {
		j.lacks(at.file, at.line, "correct the hash", "%.80s %s %s", key, p.Field, p.Message)
	}
	if h.Rule == nil {
		return
	}
	if !h.Enabled {
		h.Rule.Enabled = new(bool)
	}
	j.add(at.file, at.line, *h.Rule)
}
