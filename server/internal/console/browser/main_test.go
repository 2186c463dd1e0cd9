package browser

import (
	"bufio"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
)

const (
	axePackage = "axe-core@4.14.1"
	// axeHash is the SHA-512 of its axe.min.js, in base64.
	axeHash = "5j5ln5gG165b1AiZBDsIcaUGLFRCsBs/Gj7fXq9Qv1w6cQSnJGMpO0rRt3xmGg1OQOhQ3sid6dbs5wqME6mvFw=="
)

var (
	pictures = flag.String("pictures", "", "`DIR` for a picture of each page in both languages and themes, wide and narrow")

	program string          // the built weir
	axe     string          // the script that finds what people cannot use
	chrome  context.Context // of the browser
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := prepareAndRun(m)
	if err != nil {
		log.Print(err)
		code = 1
	}
	os.Exit(code)
}

func prepareAndRun(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "weir-browser-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	var building sync.WaitGroup
	var built error
	program = filepath.Join(dir, "weir")
	building.Go(func() {
		build := exec.Command("go", "build", "-o", program, "./server/cmd/weir")
		build.Dir = "../../../.."
		build.Env = append(os.Environ(), "GOWORK=") // the workspace has the server
		built = output(build)
	})
	axe, err = readAxe(dir)
	building.Wait()
	if err != nil || built != nil {
		return 0, fmt.Errorf("axe: %v, weir: %v", err, built)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.UserDataDir(filepath.Join(dir, "profile")),
		chromedp.Flag("disable-component-update", true))
	if found, err := exec.LookPath("chromium"); err == nil {
		options = append(options, chromedp.ExecPath(found))
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	defer cancel()
	var end context.CancelFunc
	chrome, end = chromedp.NewContext(allocator)
	defer end()
	if err := chromedp.Do(chrome); err != nil {
		return 0, fmt.Errorf("chromium does not start (apt-get install chromium): %w", err)
	}
	return m.Run(), nil
}

func output(command *exec.Cmd) error {
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", command.Args, err, out)
	}
	return nil
}

// readAxe installs axe-core with npm.
func readAxe(dir string) (string, error) {
	err := output(exec.Command("npm", "install", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", axePackage))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	hash := sha512.Sum512(text)
	if is := base64.StdEncoding.EncodeToString(hash[:]); err == nil && is != axeHash {
		return "", fmt.Errorf("%s has another axe.min.js: its hash is %s", axePackage, is)
	}
	return string(text), err
}

// A server is a running weir.
type server struct {
	url     string
	http    string // the URL of the console, if url is another
	process *os.Process
}

var listensAt = regexp.MustCompile(`(http|gateway) +(http://\S+)`)

// start starts weir serve with a rule file and these arguments, on a port of its own. With --gateway the URL is that of
// the gateway.
func start(t *testing.T, rules string, args ...string) *server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, append([]string{"serve", "--http", "127.0.0.1:0", "--config", file}, args...)...)
	var failures strings.Builder
	command.Stderr = &failures
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	wanted := "http"
	if slices.Contains(args, "--gateway") {
		wanted = "gateway"
	}
	console := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		found := listensAt.FindStringSubmatch(lines.Text())
		if found != nil && found[1] == "http" {
			console = found[2]
		}
		if found != nil && found[1] == wanted {
			go func() {
				for lines.Scan() { // the program must not wait for a reader
				}
			}()
			return &server{found[2], console, command.Process}
		}
	}
	_ = command.Wait()
	t.Fatalf("weir serve ended: %s", failures.String())
	return nil
}
