package cli_test

import (
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// TestTheTutorial follows the tutorial in both languages word for word: it saves the files, starts the servers, types
// the commands, opens the links, and compares what is printed with the page. Only addresses differ.
func TestTheTutorial(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"start/tutorial.md", "zh/quickstart.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../../../docs/" + page)
			if err != nil {
				t.Fatal(err)
			}
			l := newLearner(t)
			l.follow(string(text))
			if l.compared < 8 || len(l.opened) == 0 {
				t.Errorf("only %d outputs were compared, and %d links opened", l.compared, len(l.opened))
			}
			for _, p := range l.servers {
				p.end()
			}
		})
	}
}

// A learner follows the steps of a page.
type learner struct {
	t         *testing.T
	here      call
	addresses *strings.Replacer
	servers   map[string]*process // by the address of their API
	printed   string              // by the commands of a block
	repeated  string              // a command that is repeated until it prints what the page says
	compared  int
	opened    []string
}

func newLearner(t *testing.T) *learner {
	here := call{dir: t.TempDir()}
	service := freeAddress(t)
	return &learner{t: t, here: here, servers: map[string]*process{}, addresses: strings.NewReplacer(
		"127.0.0.1:8080", freeAddress(t), "127.0.0.1:8081", freeAddress(t),
		"127.0.0.1:8090", freeAddress(t), "127.0.0.1:8091", freeAddress(t),
		"-b 127.0.0.1 3000", "-b 127.0.0.1 "+service[strings.Index(service, ":")+1:], "127.0.0.1:3000", service,
		"redis://127.0.0.1:6379", redistest.Start(t).URL())}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

var (
	fenced     = regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```\n")
	opens      = regexp.MustCompile(`<(http://[^>]+)>`)
	namedBlock = regexp.MustCompile(`^# (\S+\.yaml)\n`)
)

func (l *learner) follow(page string) {
	l.t.Helper()
	for {
		found := fenced.FindStringSubmatchIndex(page)
		if found == nil {
			break
		}
		l.open(page[:found[0]])
		l.do(page[found[2]:found[3]], page[found[4]:found[5]])
		page = page[found[1]:]
	}
	l.open(page)
}

// open requests the links of a text.
func (l *learner) open(text string) {
	l.t.Helper()
	for _, link := range opens.FindAllStringSubmatch(text, -1) {
		l.opened = append(l.opened, link[1])
		if status, _, _ := get(l.t, l.addresses.Replace(link[1])); status != 200 {
			l.t.Errorf("%s answers %d", link[1], status)
		}
	}
}

func (l *learner) do(kind, text string) {
	l.t.Helper()
	switch kind {
	case "yaml":
		name := namedBlock.FindStringSubmatch(text)
		if name == nil {
			l.t.Fatalf("a file without its name in the first line:\n%s", text)
		}
		write(l.t, l.here.dir, name[1], text)
	case "sh":
		l.printed = ""
		for line := range strings.Lines(text) {
			l.typed(strings.TrimSpace(line))
		}
	case "output":
		l.compared++
		if strings.TrimSpace(l.printed) != strings.TrimSpace(text) {
			l.t.Errorf("printed is\n%s\nthe page says\n%s", l.printed, text)
		}
	case "http": // some lines of it, in any order
		l.compared++
		for line := range strings.Lines(text) {
			if !strings.Contains(strings.ReplaceAll(l.printed, "\r", ""), line) {
				l.t.Errorf("printed is\n%s\nwithout %s", l.printed, line)
			}
		}
	case "text": // the beginning of what the command prints in the end
		l.compared++
		redistest.Await(l.t, text, func() bool {
			l.printed = ""
			l.run(l.repeated)
			return strings.HasPrefix(l.printed, text)
		})
	default:
		l.t.Fatalf("a block of %s", kind)
	}
}

// typed types a command.
func (l *learner) typed(line string) {
	l.t.Helper()
	words, isServer := strings.CutPrefix(line, "weir serve ")
	switch {
	case line == "go install -tags grpcnotrace ./server/cmd/weir": // program is made in the same way
	case isServer:
		l.serve(words)
	case strings.HasPrefix(line, "python3 "):
		l.inBackground(l.addresses.Replace(line))
	case strings.HasPrefix(line, "sed "):
		before := l.changes()
		l.run(line)
		redistest.Await(l.t, "the changed rules", func() bool { return l.changes() > before })
	case strings.HasPrefix(line, "weir stats "): // counts are there a moment after their requests
		l.repeated = line + " --server http://127.0.0.1:8080"
	default:
		l.run(line)
	}
}

func (l *learner) run(line string) {
	l.t.Helper()
	r := l.here.shell(l.t, l.addresses.Replace(line))
	if r.code != 0 {
		l.t.Fatalf("%s: %v", line, r)
	}
	l.printed += r.out
}

// serve starts a server, after ending the one with the same address.
func (l *learner) serve(words string) {
	l.t.Helper()
	if !strings.Contains(words, "--http") {
		words += " --http 127.0.0.1:8080 --gateway 127.0.0.1:8081"
	}
	var args []string
	for _, word := range regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(l.addresses.Replace(words), -1) {
		args = append(args, strings.Trim(word, `"`))
	}
	address := args[slices.Index(args, "--http")+1]
	if before := l.servers[address]; before != nil {
		before.end()
	}
	l.servers[address] = l.here.serve(l.t, args...)
}

// changes counts how often servers put new rules in force.
func (l *learner) changes() (n int) {
	for p := range maps.Values(l.servers) {
		n += strings.Count(p.logs(), `msg="rules in force" source=`)
	}
	return n
}

// inBackground starts a service of the user, whose last word is its port, and waits until it answers.
func (l *learner) inBackground(line string) {
	l.t.Helper()
	words := strings.Fields(line)
	name, err := exec.LookPath(words[0])
	if err != nil {
		l.t.Fatal(err)
	}
	command := exec.Command(name, words[1:]...)
	command.Dir, command.SysProcAttr = filepath.Clean(l.here.dir), redistest.DieWithParent()
	if err := command.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
	})
	redistest.Await(l.t, line, func() bool {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", words[len(words)-1]))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}
