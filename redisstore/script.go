package redisstore

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weirproject/weir/internal/algorithm"
	"github.com/weirproject/weir/internal/redisconn"
)

// A twin is how one kind of claim is decided in Lua. It is text, not functions: a script is the steps of each claim
// of a decision, one after the other, so that the usual one-limit decision runs its own few lines only.
// Calling functions and building tables for them measured half as much again.
//
// In a twin a name that ends with _ belongs to the claim: key_ is its key, the names in args are its arguments
// (numbers, or text where the name is quoted), other such names are its variables. FOREIGN refuses a state that is
// not weir's. now is the time; granted is how many requests are granted so far, which fit may lower; taken is the
// instant of the grant that a refund gives back. Before its refund, step cancel of a twin lowers the units given back
// of a grant that was to wait: see cancelArgs.
//
// A key expires at an odd millisecond, 2 * ceil(µs / 2000) + 1: Redis 7.2.0 to 7.2.4 write
// a number that ends in eight zeros as 1.8e+12, which PXAT refuses, so every charge to a window
// that ends at such an instant would fail. An odd number is written out.
//
// The step shared holds functions for all claims of a kind, which are in a script once. Their
// names do not end with _.
type twin struct {
	args  []string
	texts []bool   // which arguments are text
	caps  []string // further arguments, numbers, of a script with step cap
	reply []string
	// steps are read, cap, fit, must, back, capped, drop, keep, settle, charge, cancel, refund, restore and after (see
	// assemble), batch and shared.
	steps map[string]string
	like  string // the twin of the shared limit, of a fair one: see derive
	names int    // see count
}

// parseTwins reads the kinds out of the Lua files: sections headed "---- NAME words".
func parseTwins(files fs.FS) (map[string]*twin, error) {
	twins := make(map[string]*twin)
	names, err := fs.Glob(files, "*/*.lua")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		parseTwin(string(text), twins)
	}
	for _, t := range twins {
		if t.like != "" {
			t.derive(twins[t.like])
		}
	}
	return twins, nil
}

func parseTwin(text string, twins map[string]*twin) {
	var current *twin
	sections := strings.Split("\n"+text, "\n---- ")
	for _, section := range sections[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		words := strings.Fields(heading)
		switch words[0] {
		case "kind":
			current = &twin{steps: make(map[string]string)}
			twins[words[1]] = current
		case "like":
			current.like = words[1]
		case "args":
			for _, word := range words[1:] {
				name := strings.Trim(word, "'")
				current.args = append(current.args, name)
				current.texts = append(current.texts, name != word)
			}
		case "capargs":
			current.caps = words[1:]
		case "reply":
			current.reply = words[1:]
		default:
			// A local is found faster than a field of a global.
			current.steps[words[0]] = strings.ReplaceAll(uncommented(body), "redis.call(", "call(")
		}
	}
}

// derive makes the twin of a fair limit of that of the shared one: its steps follow the other's. Before stands before
// step read, prepare before charge, standing before after, and store, which writes a hash, after each step that writes.
// The state of a shared window is in the hash: a step reads the text got_[1], with sums of the members at its end, and
// writes head_, stop_, number_, expires_ and gone_.
func (t *twin) derive(base *twin) {
	own := t.steps
	t.steps = make(map[string]string)
	for name, step := range base.steps {
		t.steps[name] = intoHash.Replace(writing.ReplaceAllStringFunc(step, intoNumbers))
	}
	for name, step := range own {
		t.steps[name] += step
	}
	t.steps["read"] = own["before"] + t.steps["read"]
	t.steps["charge"] = own["prepare"] + t.steps["charge"]
	t.steps["after"] = own["standing"] + t.steps["after"]
	for _, name := range []string{"back", "charge", "refund"} {
		t.steps[name] += own["store"]
	}
	t.steps["shared"] = own["shared"]
	t.args, t.texts = slices.Concat(base.args, t.args), slices.Concat(base.texts, t.texts)
	t.reply = slices.Concat(base.reply, t.reply)
}

var (
	intoHash = strings.NewReplacer("call('GET', key_)", "got_[1]", "call('DEL', key_)", "gone_ = true",
		"#raw_ ~= 25", "#raw_ ~= 49",
		"local start, stop, count = struct.unpack('<i8i8i8', raw_, 2)", "local start, stop, count\n"+
			"start, stop, count, sum_, members_, others_ = struct.unpack('<i8i8i8i8i8i8', raw_, 2)",
		"forget(", "fair_forget(", "now, 64, {}", "now, 16, {}",
		"held_ = held_ - #gone_", "held_ = held_ - call('ZCOUNT', key_, '-inf', from_)")
	writing = regexp.MustCompile(`call\('SET', key_, struct\.pack\('<c0i8i8i8', 'w', (.+)\), ` +
		`(?:'KEEPTTL'|'PXAT', 2 \* math\.ceil\((.+) / 2000\) \+ 1)\)`)
)

// intoNumbers turns a command that writes a window into assignments of its numbers.
func intoNumbers(command string) string {
	found := writing.FindStringSubmatch(command)
	if found[2] == "" {
		return "head_, stop_, number_ = " + found[1]
	}
	return "head_, stop_, number_, expires_ = " + found[1] + ", " + found[2]
}

// uncommented drops lines that are comments: Redis keeps a script's text.
func uncommented(body string) string {
	var lines []string
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "") + "\n"
}

// op is the operation of a script.
type op byte

const (
	opTake    op = 't' // one request
	opTimes   op = 'n' // ARGV[1] requests
	opCharge  op = 'c'
	opSettle  op = 'd' // a charge that corrects an earlier one
	opRefund  op = 'r' // of a grant at ARGV[1]
	opCancel  op = 'x' // of a grant at ARGV[1] that may not have acted: ARGV[2], see cancelArgs
	opRestore op = 'e' // of leases: they expire at ARGV[1]
	opBatch   op = 'm' // many requests, each of claims of the same kinds
)

// scripts assembles scripts and keeps them: one for each operation and sequence of kinds.
type scripts struct {
	twins  map[string]*twin
	driven bool // by a test's clock: the last argument; expiry is far away then

	mu   sync.RWMutex
	made map[string]*redisconn.Script
}

// get is the script of an operation over claims of the given kinds.
func (s *scripts) get(o op, kinds []*kind, behind bool) *redisconn.Script {
	var name [2 + 32]byte
	id := append(name[:0], byte(o))
	if behind {
		id = append(id, '-')
	}
	for _, k := range kinds {
		id = append(id, k.letter)
	}
	s.mu.RLock()
	script := s.made[string(id)]
	s.mu.RUnlock()
	if script != nil {
		return script
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if script = s.made[string(id)]; script == nil { // or another caller has made it meanwhile
		script = redisconn.ScriptOf(s.text(o, kinds, behind))
		s.made[string(id)] = script
	}
	return script
}

// text is a script; behind says that Redis' clock was ahead of its present time.
func (s *scripts) text(o op, kinds []*kind, behind bool) string {
	if o == opBatch {
		return s.assembleBatch(kinds, behind)
	}
	first := 1 + heads[o].args
	clock := s.clock(strconv.Itoa(first + s.args(kinds, behind)))
	body := s.shared(kinds) + s.assemble(o, kinds, claimText{first: first, behind: behind})
	return "local call = redis.call\n" + clock + heads[o].text + body
}

// shared is the shared functions of the kinds.
func (s *scripts) shared(kinds []*kind) string {
	var text strings.Builder
	seen := map[string]bool{"": true}
	for _, k := range kinds {
		for _, name := range []string{s.twins[k.twin].like, k.twin} {
			if !seen[name] {
				text.WriteString(s.twins[name].steps["shared"])
			}
			seen[name] = true
		}
	}
	return text.String()
}

// assembleBatch decides requests separately, one after the other: an error of the state of one does not affect the
// others. So each is a call of a function by pcall, but for the usual kinds: their twins have a step for batches.
//
// ARGV is: the number of leading requests with other times than 1; the number of arguments of each request, or 0 if
// all have the same; for scripts without such a step, 1 if no key occurs twice; the times of the leading requests; the
// arguments. The reply is packed: now, and for each request the number granted and the numbers of its states, or the
// code of a request that changed no state. Texts of errors follow, one for each request that failed.
func (s *scripts) assembleBatch(kinds []*kind, behind bool) string {
	head := "local call = redis.call\n" + s.clock("#ARGV") +
		"local multi, stride = tonumber(ARGV[1]), tonumber(ARGV[2])\n"
	if text := s.twins[kinds[0].twin].steps["batch"]; text != "" {
		return head + text
	}
	decide := s.assemble(opBatch, kinds, claimText{first: 1, key: "key + ", arg: "arg + ", behind: behind})
	decide = strings.ReplaceAll(decide, "call('GET', KEYS", "get(KEYS")
	body := s.shared(kinds) + "local function decide(key, arg, granted, place)\n" + decide + "end\n"
	replies := 1 + width(kinds)
	read := ""
	if strings.Contains(body, "get(KEYS") {
		read = `local known = {}
if ARGV[3] == '1' then
  local ok, values = pcall(call, 'MGET', unpack(KEYS))
  for i = 1, ok and #KEYS or 0 do known[KEYS[i]] = values[i] end
end
local function get(key) return known[key] or call('GET', key) end
`
	}
	return head + s.once(kinds, behind) + `local KEYS, ARGV, numbers, texts = KEYS, ARGV, {now}, {}
local pack, fields, floor, ceil, max, min = struct.pack, struct.unpack, math.floor, math.ceil, math.max, math.min
` + read + locals.Replace(body) + `
for i = 0, #KEYS / ` + strconv.Itoa(len(kinds)) + ` - 1 do
  local times, place = i < multi and tonumber(ARGV[4 + i]) or 1, ` + strconv.Itoa(replies) + ` * i + 1
  local _, answer = pcall(decide, ` + strconv.Itoa(len(kinds)) + ` * i, 3 + multi + i * stride, times, place)
  if answer then
    for j = place + 1, place + ` + strconv.Itoa(replies) + ` do numbers[j] = 0 end
    numbers[place + 1] = answer[1] or ` + strconv.Itoa(failed) + `
    if not answer[1] then texts[#texts + 1] = answer.err or answer end
  end
end
return {struct.pack('<' .. ('i8'):rep(#numbers), unpack(numbers)), unpack(texts)}`
}

// once turns the arguments of a batch into numbers, if they are the same for all requests: each would do it again.
func (s *scripts) once(kinds []*kind, behind bool) string {
	text, at := "if stride == 0 then\nlocal at = 3 + multi\n", 0
	for _, k := range kinds {
		for _, isText := range s.twins[k.twin].texts {
			if at++; !isText {
				text += fmt.Sprintf("ARGV[at + %d] = ARGV[at + %d] + 0\n", at, at)
			}
		}
		at += s.twins[k.twin].size(behind) - len(s.twins[k.twin].args)
	}
	return text + "end\n"
}

// args is how many arguments claims of the kinds have.
func (s *scripts) args(kinds []*kind, behind bool) (n int) {
	for _, k := range kinds {
		n += s.twins[k.twin].size(behind)
	}
	return n
}

// size is how many arguments a claim has.
func (t *twin) size(behind bool) int {
	if behind {
		return len(t.args) + len(t.caps)
	}
	return len(t.args)
}

// names is how many names claims of the kinds have.
func (s *scripts) names(kinds []*kind) (n int) {
	for _, k := range kinds {
		n += s.twins[k.twin].count()
	}
	return n
}

// count returns how many names a claim has, and keeps it.
func (t *twin) count() int {
	if t.names == 0 {
		seen := make(map[string]bool)
		for _, step := range t.steps {
			for _, name := range own.FindAllString(step, -1) {
				seen[name] = true
			}
		}
		t.names = len(t.args) + len(seen)
	}
	return t.names
}

// claimSteps are the steps of a claim: the steps before any write, and the later ones.
type claimSteps struct {
	before, back, change, after string
	reply                       []string
}

// assemble joins the steps of the claims: all are read before one is written, because Redis does not roll back.
func (s *scripts) assemble(o op, kinds []*kind, c claimText) string {
	claims := make([]claimSteps, len(kinds))
	for i, k := range kinds {
		c.number = i + 1
		claims[i] = c.steps(o, s.twins[k.twin])
		c.first += s.twins[k.twin].size(c.behind)
	}
	if s.names(kinds) > roomFor {
		return nest(o, claims)
	}
	var all claimSteps
	for _, one := range claims {
		all.before += one.before
		all.back += one.back
		all.change += one.change
		all.after += one.after
		all.reply = append(all.reply, one.reply...)
	}
	asked, back := all.asked(o)
	return asked + all.before + back + all.writes() + all.after + heads[o].ending(all.reply)
}

// nest joins the steps of claims, each in a function: it reads, calls the function of the next claim, and writes
// after all have read.
func nest(o op, claims []claimSteps) string {
	h, size := heads[o], 0
	for i := range claims {
		size += len(claims[i].reply)
	}
	first := strings.Split(h.reply, ", ")
	place := 1 + len(first) + size
	text, asked, next := "", "", ""
	for i, one := range slices.Backward(claims) {
		head, back := one.asked(o)
		if asked == "" {
			asked = head
		}
		place -= len(one.reply)
		text += fmt.Sprintf("local function claim%d()\n", i+1) + one.before + next + back + one.writes() + one.after +
			h.put(place, one.reply) + "end\n"
		next = fmt.Sprintf("local stop = claim%d()\nif stop then return stop end\n", i+1)
	}
	text = asked + text + next + h.put(1, first)
	if o == opBatch {
		return text
	}
	return "local reply = {" + strings.Repeat("0, ", len(first)+size) + "}\n" + text + "return reply"
}

// asked is the text before the claims if the step back depends on it, and that step.
func (c *claimSteps) asked(o op) (head, back string) {
	if c.back == "" || o == opTake {
		return "", c.back
	}
	return "local asked = granted > 0\n", "if asked then\n" + c.back + "end\n" // a peek writes nothing
}

func (c *claimSteps) writes() string { return "if granted > 0 then\n" + c.change + "end\n" }

// steps are the steps of a claim for an operation.
func (c *claimText) steps(o op, t *twin) (all claimSteps) {
	all.before = c.arguments(t) + t.steps["read"]
	back := t.steps["back"]
	if c.behind {
		all.before += t.steps["cap"]
		back += t.steps["capped"]
	}
	for _, name := range heads[o].change {
		all.change += t.steps[name]
	}
	if heads[o].fits {
		all.back = back
		all.before += t.steps["fit"]
	} else if must := t.steps["must"]; must != "" && o != opRestore {
		all.before += must
		if o == opCharge || o == opSettle { // a lease on which the charge depends is released
			all.change = "if renew_ == '1' then\n" + t.steps["refund"] + "else\n" + all.change + "end\n"
		}
	}
	if cancel := t.steps["cancel"]; o == opCancel && cancel != "" {
		from := strconv.Itoa(cancelBytes*(c.number-1) + 1)
		all.change = "local back_, due_, room_, roompart_ = struct.unpack('<i8i8i8i8', cancels, " + from + ")\n" +
			cancel + all.change
	}
	all.before, all.back, all.change = c.text(all.before), c.text(all.back), c.text(all.change)
	all.after = c.text(t.steps["after"])
	for _, name := range t.reply {
		all.reply = append(all.reply, c.text(name))
	}
	return all
}

// head is the text that an operation adds to the steps of claims.
type head struct {
	text   string
	change []string
	reply  string
	args   int  // of ARGV, the first ones, that are the operation's own
	fits   bool // it grants what fits
}

// heads are the beginnings of scripts, the steps that change state, and the beginnings of
// replies: one element less where one bit is the grant.
var heads = map[op]head{
	opTake:    {"local granted = 1\n", takes, "2 * now + granted", 0, true},
	opTimes:   {"local granted = tonumber(ARGV[1])\n", takes, "granted, now", 1, true},
	opCharge:  {"local granted = 1\n", []string{"back", "drop", "charge"}, "granted, now", 0, false},
	opSettle:  {"local granted = 1\n", []string{"back", "keep", "settle", "charge"}, "granted, now", 0, false},
	opRefund:  {"local granted, taken = 1, tonumber(ARGV[1])\n", refunds, "granted, now", 1, false},
	opCancel:  {"local granted, taken, cancels = 1, tonumber(ARGV[1]), ARGV[2]\n", refunds, "granted, now", 2, false},
	opRestore: {"local granted, taken = 1, tonumber(ARGV[1])\n", []string{"restore"}, "granted, now", 1, false},
	opBatch:   {"", takes, "granted", 0, true},
}

var (
	takes   = []string{"drop", "charge"} // step back stands before: a refusal makes it too
	refunds = []string{"back", "keep", "refund"}
)

// ending returns the reply, or in a batch adds it to the reply of all.
func (h head) ending(reply []string) string {
	all := append(strings.Split(h.reply, ", "), reply...)
	if h.text == "" {
		return h.put(1, all)
	}
	return "return {" + strings.Join(all, ", ") + "}"
}

// put adds values to a reply from a place on.
func (h head) put(place int, values []string) string {
	table := "reply["
	if h.text == "" {
		table = "numbers[place + "
	}
	places := make([]string, len(values))
	for i := range places {
		places[i] = table + strconv.Itoa(place+i) + "]"
	}
	return strings.Join(places, ", ") + " = " + strings.Join(values, ", ") + "\n"
}

// clock reads the time once: Redis 7.0 does not freeze it within a script.
func (s *scripts) clock(last string) string {
	if s.driven {
		return "local now = tonumber(ARGV[" + last + "])\n"
	}
	return "local time = call('TIME')\nlocal now = time[1] * 1000000 + time[2]\n"
}

// claimText writes one claim's steps.
type claimText struct {
	number   int
	first    int    // the index in ARGV of its first argument
	key, arg string // offsets of the indices in KEYS and ARGV
	behind   bool   // Redis' clock was ahead of what it shows: see clocks
}

// roomFor is how many names of claims a function has: Lua allows one 200 locals in all, and the shared functions of
// all twins take 36.
const roomFor = 140

var own = regexp.MustCompile(`\b[a-z]+(_[a-z]+)*_\b`)

// arguments declares a claim's arguments.
func (c *claimText) arguments(t *twin) string {
	names := slices.Concat(t.args, t.caps)[:t.size(c.behind)]
	values := make([]string, len(names))
	for i := range values {
		values[i] = fmt.Sprintf("ARGV[%s%d]", c.arg, c.first+i)
		if i >= len(t.texts) || !t.texts[i] {
			values[i] += " + 0"
		}
	}
	return "local " + strings.Join(names, "_, ") + "_ = " + strings.Join(values, ", ") + "\n"
}

func (c *claimText) text(step string) string {
	refusal := fmt.Sprintf("do return redis.error_reply('WEIR foreign %d') end", c.number)
	step = strings.ReplaceAll(step, "FOREIGN", refusal)
	return own.ReplaceAllStringFunc(step, func(name string) string {
		if name == "key_" {
			return fmt.Sprintf("KEYS[%s%d]", c.key, c.number)
		}
		return name + strconv.Itoa(c.number)
	})
}

// locals are the functions that a batch's script has as locals, which are found faster.
var locals = strings.NewReplacer("struct.pack(", "pack(", "struct.unpack(", "fields(", "math.floor(", "floor(",
	"math.ceil(", "ceil(", "math.max(", "max(", "math.min(", "min(")

// newScripts reads the twins. A driven store keeps its keys for an hour of real time:
// there the instants are the test's, and Redis would expire them by its own clock.
func newScripts(driven bool) (*scripts, error) {
	twins, err := parseTwins(algorithm.Twins)
	if err != nil {
		return nil, err
	}
	if driven {
		far := strings.NewReplacer("'PXAT', 2 * math.ceil(", "'PX', 3600000 + 0 * math.ceil(",
			"'PEXPIREAT', key_, 2 * math.ceil(", "'PEXPIRE', key_, 3600000 + 0 * math.ceil(",
			"'PXAT', at", "'PX', 3600000", "'PXAT', text:sub(2, -4)", "'PX', 3600000")
		for _, t := range twins {
			for name := range t.steps {
				t.steps[name] = far.Replace(t.steps[name])
			}
		}
	}
	return &scripts{twins: twins, driven: driven, made: make(map[string]*redisconn.Script)}, nil
}
