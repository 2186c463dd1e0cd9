package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A tab is a page in the browser. At the end of its test there must be no error of a script, no refusal by the
// content security policy, and no request to another server.
type tab struct {
	t      *testing.T
	ctx    context.Context
	server *server

	mutex    sync.Mutex
	faults   []string
	expected []string // parts of faults that the test provokes
}

// patience is for a machine that is busy; nothing waits for all of it unless it fails.
const patience = 3 * time.Minute

func open(t *testing.T, s *server) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chrome, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, server: s}
	b.do() // opens the tab
	var stop context.CancelFunc
	b.ctx, stop = context.WithTimeout(ctx, patience)
	t.Cleanup(stop)
	if err := chromedp.Listen(b.ctx, b.watch); err != nil {
		t.Fatal(err)
	}
	call(b, network.Enable, network.EnableParams{})
	call(b, cdplog.Enable, cdp.Empty{})
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Shanghai"})
	b.look(1280, "light")
	t.Cleanup(b.check)
	return b
}

// call sends a command of the DevTools protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], parameters P) R {
	b.t.Helper()
	answer, err := chromedp.Call(b.ctx, command, parameters)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer
}

func (b *tab) watch(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.fault("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			var words []string
			for _, one := range e.Args {
				words = append(words, string(one.Value)+one.Description)
			}
			b.fault("console: %s", strings.Join(words, " "))
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError || e.Entry.Level == cdplog.EntryLevelWarning {
			b.fault("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if url := e.Request.URL; !strings.HasPrefix(url, b.server.url+"/") && !strings.HasPrefix(url, "data:") && url != "about:blank" {
			b.fault("a request to %s", url)
		}
	}
}

func (b *tab) fault(format string, values ...any) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.faults = append(b.faults, fmt.Sprintf(format, values...))
}

// expect names a fault that the test provokes, such as the status of an answer.
func (b *tab) expect(part string) { b.expected = append(b.expected, part) }

func (b *tab) check() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
faults:
	for _, fault := range b.faults {
		for _, part := range b.expected {
			if strings.Contains(fault, part) {
				continue faults
			}
		}
		b.t.Error(fault)
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// value evaluates an expression of JavaScript.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	is, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", shorten(expression), err)
	}
	return is
}

func shorten(text string) string { return text[:min(len(text), 200)] }

// look sets the width of the window and the theme of the system.
func (b *tab) look(width int64, theme string) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1,
		Mobile: width < 500})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
}

// load opens a page of the console; goTo also waits until it has loaded its documents.
func (b *tab) load(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.server.url + "/console" + path))
}

func (b *tab) goTo(path string) {
	b.t.Helper()
	b.load(path)
	b.settled()
}

// settled waits until the page has a heading and loads nothing that it shows.
func (b *tab) settled() {
	b.t.Helper()
	b.until(`!!document.querySelector('main h1') && !document.querySelector('.loading')`)
}

// until waits until an expression of JavaScript is true. It asks from outside, because chromedp's Poll makes functions
// from texts, which the page's policy refuses.
func (b *tab) until(expression string) {
	b.t.Helper()
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		is, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if is {
			return
		}
		if b.ctx.Err() != nil || time.Since(begin) > patience/2 {
			text, _ := chromedp.Run(context.WithoutCancel(b.ctx), chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
			b.t.Fatalf("never true: %s (%v); the page is %s", shorten(expression), err, text)
		}
	}
}

// see waits until a text is on the page.
func (b *tab) see(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
}

// text returns the text of the first element that a selector finds, or "".
func (b *tab) text(selector string) string {
	b.t.Helper()
	return value[string](b, fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ''`, selector))
}

// is evaluates an expression to true or false.
func (b *tab) is(expression string) bool {
	b.t.Helper()
	return value[bool](b, "!!("+expression+")")
}

// click clicks on the first element with this text among those that a selector finds.
func (b *tab) click(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`(() => {
		const found = [...document.querySelectorAll(%q)].find((one) => one.innerText.includes(%q) && !one.disabled);
		if (found) found.click();
		return !!found;
	})()`, selector, text))
}

func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`(() => { const field = document.querySelector(%q); field?.focus(); field?.select(); return field && field === document.activeElement; })()`, selector))
	b.keys(text)
}

// keys types on the keyboard, wherever the focus is.
func (b *tab) keys(text string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(text))
}

func (b *tab) url() string {
	b.t.Helper()
	return value[string](b, "location.href")
}

// usable fails if axe finds anything serious, or if a narrow page has to be moved sideways.
func (b *tab) usable(what string) {
	b.t.Helper()
	type violation struct {
		ID, Impact, Help string
		Nodes            []struct{ HTML, FailureSummary string }
	}
	if !b.is("window.axe") {
		value[int](b, axe+";0")
	}
	found := value[[]violation](b, `axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((one) => ({ID: one.id,
		Impact: one.impact, Help: one.help, Nodes: one.nodes.map((node) => ({HTML: node.html, FailureSummary: node.failureSummary}))})))`)
	for _, one := range found {
		if one.Impact == "serious" || one.Impact == "critical" {
			b.t.Errorf("%s: %s: %s: %s (%s)", what, one.ID, one.Help, one.Nodes[0].HTML, one.Nodes[0].FailureSummary)
		}
	}
	b.fits(what)
}

func (b *tab) fits(what string) {
	b.t.Helper()
	if !b.is(`document.scrollingElement.scrollWidth <= innerWidth`) {
		wide := value[string](b, `[...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > innerWidth + 1 &&
			!one.closest('.scroll')).map((one) => one.outerHTML.slice(0, 120)).slice(0, 3).join('\n')`)
		b.t.Errorf("%s is wider than the window: %s", what, wide)
	}
}

// wideAndNarrow checks a page in a theme, of which dark is the background, and keeps pictures of it in two widths.
func (b *tab) wideAndNarrow(what, theme, dark string) {
	b.t.Helper()
	background := value[string](b, "getComputedStyle(document.body).backgroundColor")
	if (background == dark) != (theme == "dark") {
		b.t.Errorf("%s has the other theme", what)
	}
	b.usable(what)
	b.picture(what + "-wide")
	b.look(390, theme)
	b.fits(what + ", narrow")
	b.picture(what + "-narrow")
}

// picture keeps a picture of the page in the folder of -pictures.
func (b *tab) picture(name string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	image, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), image, 0o600); err != nil {
		b.t.Fatal(err)
	}
}
