package clientstest

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

const tree = "../../../clients"

var program string // the built weir

func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		log.Print(err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "weir-clients-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "weir")
	build := exec.Command("go", "build", "-o", program, "github.com/weirproject/weir/server/cmd/weir")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%v: %w\n%s", build.Args, err, out)
	}
	return m.Run(), nil
}

// run runs a command in a folder, and fails with all that it wrote.
func run(t *testing.T, dir string, env []string, name string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir, command.Env = dir, append(os.Environ(), env...)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command.Args, err, out)
	}
}

// copied is a copy of a client, so that its packages are not installed into the tree.
func copied(t *testing.T, client string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	from := os.DirFS(filepath.Join(tree, client))
	err := fs.WalkDir(from, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Name() == "node_modules" || entry.Name() == "dist" || entry.Name() == "target" {
			return fs.SkipDir
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(dir, path), 0o755)
		}
		text, err := fs.ReadFile(from, path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, path), text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var listensAt = regexp.MustCompile(`http +(http://\S+)`)

// server starts weir with the rules of the tests, until the test ends, and returns what clients read of it.
func server(t *testing.T) (env []string) {
	t.Helper()
	command := exec.Command(program, "serve", "--http", "127.0.0.1:0", "--gateway", "off", "--config",
		filepath.Join(tree, "rules.yaml"))
	var said redistest.Log
	command.Stderr = &said
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	cases, err := filepath.Abs(filepath.Join(tree, "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if found := listensAt.FindStringSubmatch(lines.Text()); found != nil {
			go func() { _, _ = io.Copy(io.Discard, out) }() // the program must not wait for a reader
			return []string{"WEIR_URL=" + found[1], "WEIR_CASES=" + cases}
		}
	}
	t.Fatalf("weir serve ended: %s", said.String())
	return nil
}

// readme has the examples of a client's page, with the address of the server.
func readme(t *testing.T, client, kind, url string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tree, client, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var examples []string
	for _, rest := range strings.Split(string(text), "```"+kind+"\n")[1:] {
		example, _, _ := strings.Cut(rest, "```")
		url = strings.TrimPrefix(url, "WEIR_URL=")
		examples = append(examples, strings.ReplaceAll(example, "http://127.0.0.1:8080", url))
	}
	if len(examples) == 0 {
		t.Fatalf("the page of %s has no block of %s", client, kind)
	}
	return examples
}

func TestPython(t *testing.T) {
	t.Parallel()
	packages, dir := t.TempDir(), copied(t, "python")
	run(t, dir, nil, "pip3", "install", "-q", "--disable-pip-version-check", "--root-user-action", "ignore", "--no-deps",
		"--require-hashes", "--target", packages, "-r", "requirements.txt")
	env := append(server(t), "PYTHONPATH="+filepath.Join(dir, "src")+":"+packages, "PYTHONDONTWRITEBYTECODE=1")
	run(t, dir, env, "python3", "-W", "error::RuntimeWarning", "-m", "unittest", "discover", "-s", "tests")
	run(t, dir, env, "python3", "-c", readme(t, "python", "python", env[0])[0])
}

func TestTypeScript(t *testing.T) {
	t.Parallel()
	dir := copied(t, "typescript")
	run(t, dir, nil, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	env := server(t)
	example := strings.Replace(readme(t, "typescript", "ts", env[0])[0], `"weir-client"`, `"../src/index.js"`, 1)
	if err := os.WriteFile(filepath.Join(dir, "test", "readme.ts"), []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir, nil, "npx", "tsc")
	run(t, dir, env, "node", "--test", "dist/test/client.test.js")
	run(t, dir, env, "node", "dist/test/readme.js")
}

// runsExample runs the first example of the page for Java among its tests.
const runsExample = `class ExampleTest {
    @org.junit.jupiter.api.Test
    void runs() throws Exception {
        Example.main(new String[0]);
    }
}
`

var className = regexp.MustCompile(`(?m)^(?:public )?class (\w+)`)

// TestJava also compiles the examples of the page, and runs the first. The classes that were compiled with Spring Boot 3 are
// tested with Spring Boot 4 too.
func TestJava(t *testing.T) {
	t.Parallel()
	// A JDK and Maven are larger than all that the other tests need together, so machines are not required to have them;
	// the test passes without, as a skipped test would hide whether it was chosen or left out by mistake.
	if _, err := exec.LookPath("mvn"); err != nil {
		t.Log("mvn is not on PATH: the client for Java is not tested")
		return
	}
	dir, env := copied(t, "java"), server(t)
	tests := filepath.Join(dir, "src", "test", "java")
	files := map[string]string{"ExampleTest": runsExample}
	for _, example := range readme(t, "java", "java", env[0]) {
		name := className.FindStringSubmatch(example)
		if name == nil {
			t.Fatalf("an example has no class:\n%s", example)
		}
		files[name[1]] = example
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(tests, name+".java"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fast := "JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" // the machines end before what they would optimize pays
	run(t, dir, append(env, fast), "mvn", "-q", "-B", "test")
	run(t, dir, append(server(t), fast), "mvn", "-q", "-B", "surefire:test", "-Dspring-boot.version=4.0.7", "-Dtest=org.weirproject.spring.*Test")
}
