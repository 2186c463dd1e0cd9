package browser

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

func TestBacktestOfAnUpload(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "access.log.gz")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(file)
	if _, err := z.Write([]byte(accessLog())); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	b := open(t, start(t, reportRules))
	b.expect("422") // of the mistake below
	b.goTo("/backtest?lang=en")
	b.see("The last 24 hours, without a log")
	b.do(chromedp.SetUploadFiles("input[type=file]", []string{name}))
	b.fill("textarea", "rules: [{name: login, limit: 3}]")
	b.click("button", "Replay")
	b.see("line 1, column 30:")
	b.see("limit is \"3\"; allowed:")
	b.usable("backtest with a mistake")

	b.fill("textarea", "rules: [{name: login, match: {path: /login}, key: [client.ip], limit: 10/1m}]")
	b.fill("input[name=sweep]", "login=5/1m..200/1m:6")
	b.click("button", "Replay")
	b.see("requests would be refused")
	b.see("access.log.gz")
	b.see("Compared with other rules")
	b.until(`document.querySelectorAll('#report svg circle.refused').length === 6`)
	if b.is(`window.taken`) {
		t.Error("a text of the log ran as a script")
	}
	b.usable("backtest with a report")
	b.picture("backtest-report")
}
