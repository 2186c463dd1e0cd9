package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// hostile is a User-Agent that would be markup, or turn the text around, if a page let it.
const hostile = "</script><script>window.taken=1</script><img src=x onerror=window.taken=1><!-- \u202Egnp.exe\u202C \xff\u2028"

// accessLog has a program that asks twice a second for ten minutes, and visitors who ask every ten.
func accessLog() string {
	var b strings.Builder
	begin := time.Date(2026, 11, 20, 23, 55, 0, 0, time.UTC)
	line := func(address string, second int, path, agent string) {
		fmt.Fprintf(&b, "%s - - [%s] \"GET %s HTTP/1.1\" 200 12 \"-\" \"%s\"\n", address,
			begin.Add(time.Duration(second)*time.Second).Format("02/Jan/2006:15:04:05 -0700"), path, agent)
	}
	for second := range 600 {
		line("203.0.113.7", second, "/login", "python-requests/2.31")
		line("203.0.113.7", second, "/login", "python-requests/2.31")
		if visitor := second % 10; visitor > 0 {
			line(fmt.Sprintf("198.51.100.%d", visitor), second, "/home?<b>q</b>", hostile)
		}
	}
	return b.String() + "this is no line of a log\n"
}

const reportRules = `
rules:
  - {name: login, description: Sign-in form, match: {path: /login}, key: [client.ip], limit: 80/1m}
  - {name: home, match: {path: /home}, key: [client.ip], limit: 4/1m}
`

// backtest writes a page about a log, and opens it as a file.
func backtest(t *testing.T, rules, log string, flags ...string) (*tab, []byte) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"weir.yaml": rules, "old.yaml": someRules, "access.log": log} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) {
		command := exec.Command(program, append(append([]string{"backtest", "--log-format", "combined"}, args...), "weir.yaml", "access.log")...)
		command.Dir = dir
		if err := output(command); err != nil {
			t.Fatal(err)
		}
	}
	run(append(flags, "--format", "html", "--out", "report.html")...)
	run(append(flags, "--format", "json", "--out", "report.json")...)
	figures, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, &server{url: "file://" + dir}) // so a request to anything else is a fault
	b.do(chromedp.Navigate("file://" + dir + "/report.html"))
	return b, figures
}

func TestReportInAFile(t *testing.T) {
	t.Parallel()
	b, figures := backtest(t, reportRules, accessLog(), "--sweep", "home=2/1m..100/1m:8", "--propose", "home", "--against", "old.yaml",
		"--good", "path=/home status<400")
	b.settled()
	var report struct {
		Total struct{ Requests, Refused int }
	}
	if err := json.Unmarshal(figures, &report); err != nil || report.Total.Refused == 0 {
		t.Fatal(err, report)
	}
	b.see(fmt.Sprintf("%s of %s requests", thousands(report.Total.Refused), thousands(report.Total.Requests)))
	b.click("a", "home")
	b.until(`document.querySelector('#rule-detail h2').innerText.includes('home 4/1m')`)
	if b.is(`document.querySelector('main').children[1] !== document.querySelector('main .reading')`) {
		t.Error("after the choice of a rule the parts have another order")
	}
	for what, expression := range map[string]string{
		"refused requests over time": `document.querySelector('svg path.fill.refused').getAttribute('d') !== ''`,
		"keys above the limit":       `document.querySelectorAll('svg rect.fill.refused').length > 0`,
		"the limit":                  `document.querySelectorAll('svg line.limit').length >= 2`,
		"the curve":                  `document.querySelectorAll('svg circle.refused').length === 8`,
		"the program":                `[...document.querySelectorAll('tr')].some((one) => one.innerText.includes('203.0.113.7') && one.innerText.includes('python-requests'))`,
		"the line that was not read": `document.body.innerText.includes('this is no line of a log')`,
		"the other rules":            `document.body.innerText.includes('Newly refused')`,
	} {
		if !b.is(expression) {
			t.Errorf("the page lacks %s", what)
		}
	}
	if b.is(`window.taken || document.querySelector('main img, main b b')`) || b.is(`/[\u202A-\u202E\u2028]/.test(document.body.innerText)`) {
		t.Error("texts of the log are markup, or turn the text around")
	}
	b.usable("report")
	b.picture("report-en-light-wide")

	b.click("a", "login")
	b.until(`document.querySelector('#rule-detail h2').innerText.includes('login 80/1m') && location.hash === '#login'`)
	b.until(`(document.querySelector('figure svg[tabindex]').focus(), true)`)
	b.keys(kb.ArrowRight)
	b.until(`!!document.querySelector('.tip')`)
	b.do(chromedp.Evaluate[chromedp.Void](`dispatchEvent(new Event('beforeprint'))`))
	b.until(`document.querySelectorAll('#rule-detail').length === 2`)
	b.do(chromedp.Evaluate[chromedp.Void](`dispatchEvent(new Event('afterprint'))`))

	b.look(390, "dark")
	b.click("button", "中文")
	b.see("回测")
	b.until(`getComputedStyle(document.body).backgroundColor === 'rgb(16, 20, 24)'`)
	b.usable("report, narrow, dark and Chinese")
	b.picture("report-zh-dark-narrow")
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

func TestReportOfAHundredRules(t *testing.T) {
	t.Parallel()
	rules := "rules:\n"
	for i := range 100 {
		rules += fmt.Sprintf("  - {name: rule-%d, key: [client.ip], limit: %d/1m, mode: shadow}\n", i, 5+i)
	}
	b, _ := backtest(t, rules, accessLog())
	b.settled()
	b.click("button", "Show all 100 rules")
	b.until(`document.querySelectorAll('tbody')[0].rows.length === 100`)
	b.usable("a hundred rules")
	b.picture("report-100-rules")
}

func TestReportOfAnEmptyLog(t *testing.T) {
	t.Parallel()
	b, _ := backtest(t, reportRules, accessLog(), "--from", "2026-12-01")
	b.settled()
	b.see("No request was decided")
	b.see("this is no line of a log")
	b.usable("an empty log")
	b.picture("report-empty")
}

func TestReportWithoutScripts(t *testing.T) {
	t.Parallel()
	b, _ := backtest(t, reportRules, accessLog())
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.do(chromedp.Reload())
	b.see("The report needs JavaScript")
	b.picture("report-without-scripts")
}
