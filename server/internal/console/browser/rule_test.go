package browser

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestEditSaveAndRollBack(t *testing.T) {
	t.Parallel()
	s := start(t, someRules)
	b := open(t, s)
	b.expect("422") // mistakes
	b.goTo("/rules/login?lang=en")
	b.until(`document.querySelector('textarea[name=yaml]')?.value.includes('limit: 5/1m')`)

	b.edit("limit: 5/1m", "limit: 5/minut")
	b.see("line 6, column")
	if !b.is(`document.querySelector('.effect button.primary').disabled`) {
		t.Error("a rule with mistakes can be saved")
	}
	b.edit("limit: 5/minut", "limit: 7/1m")
	b.see("login: limit 5/1m -> 7/1m; counts are kept")
	b.click(".effect button", "Save…")
	b.until(`document.querySelector('dialog .changes')`)
	b.fill("dialog input[name=why]", "too tight at noon")
	b.click("dialog button.primary", "Save")
	b.see("too tight at noon")
	b.see("revision 1 by")
	if limit := s.limitOf(t, "login"); limit != "7/1m" {
		t.Errorf("the limit in force is %s", limit)
	}

	b.edit("limit: 7/1m", "limit: 9/1m")
	b.click(".effect button", "Save…")
	b.until(`document.querySelector('dialog .changes')`)
	b.click("dialog button.primary", "Save")
	b.see("revision 2 by")
	b.click("td button", "Roll back…")
	b.see("Roll back to revision 1")
	b.until(`document.querySelector('dialog .changes')?.innerText.includes('limit 9/1m -> 7/1m')`)
	b.click("dialog button.primary", "Roll back")
	b.see("revision 3 by")
	b.until(`document.querySelector('textarea[name=yaml]').value.includes('limit: 7/1m')`)
	if limit := s.limitOf(t, "login"); limit != "7/1m" {
		t.Errorf("after the rollback the limit in force is %s", limit)
	}
}

// TestFirstEditIsUndone: of a rule of the file, by the button after it, and from its history.
func TestFirstEditIsUndone(t *testing.T) {
	t.Parallel()
	s := start(t, someRules)
	b := open(t, s)
	b.goTo("/rules/login?lang=en")
	save := func() {
		b.edit("limit: 5/1m", "limit: 50/1m")
		b.click(".effect button", "Save…")
		b.until(`document.querySelector('dialog .changes')`)
		b.click("dialog button.primary", "Save")
		b.until(`document.querySelector('.done')?.innerText.includes('limit 5/1m -> 50/1m')`)
	}
	save()
	b.see("the rule of config")
	b.picture("first-edit-en")
	b.click(".done button", "Undo")
	b.see("Undone")
	b.until(`document.querySelector('textarea[name=yaml]')?.value.includes('limit: 5/1m')`)
	if limit := s.limitOf(t, "login"); limit != "5/1m" {
		t.Errorf("after the undo the limit in force is %s", limit)
	}
	save()
	b.click("td button", "Back to this rule")
	b.see("limit 50/1m -> 5/1m")
	b.click("dialog button.primary", "Back to this rule")
	b.until(`document.querySelector('.done')?.innerText.includes('in force again')`)
	if limit := s.limitOf(t, "login"); limit != "5/1m" {
		t.Errorf("back from the history the limit in force is %s", limit)
	}
	b.click(".done button", "Undo")
	b.until(`document.querySelector('textarea[name=yaml]')?.value.includes('limit: 50/1m')`)
	b.goTo("/changes?lang=en&kind=made")
	b.see("limit 5/1m -> 50/1m")
	b.look(390, "light")
	b.goTo("/rules/login?lang=zh")
	b.see("config 中的规则")
	b.fits("a rule with its history, narrow")
	b.picture("first-edit-zh-narrow")
}

// edit replaces a part of the rule's text, as a user who types.
func (b *tab) edit(old, text string) {
	b.t.Helper()
	b.until(`document.querySelector('textarea[name=yaml]')?.value.includes(` + quote(old) + `)`)
	value[bool](b, `(() => {
		const field = document.querySelector('textarea[name=yaml]');
		field.value = field.value.replace(`+quote(old)+`, `+quote(text)+`);
		return field.dispatchEvent(new Event('input', {bubbles: true}));
	})()`)
}

func quote(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}

// limitOf is the first limit of a rule in force.
func (s *server) limitOf(t *testing.T, rule string) string {
	t.Helper()
	answer, err := http.Get(s.url + "/v1/admin/rules/" + rule)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var r struct{ Limit []string }
	if err := json.NewDecoder(answer.Body).Decode(&r); err != nil || len(r.Limit) == 0 {
		t.Fatalf("%d %v", answer.StatusCode, err)
	}
	return r.Limit[0]
}

func TestConflictIsShown(t *testing.T) {
	t.Parallel()
	s := start(t, someRules)
	b := open(t, s)
	b.expect("412")
	b.goTo("/rules/login?lang=en")
	b.edit("limit: 5/1m", "limit: 7/1m")
	b.see("login: limit 5/1m -> ")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.url+"/v1/admin/rules/login", strings.NewReader("name: login\nkey: client.ip\nlimit: 8/1m\n"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/yaml")
	request.Header.Set("If-None-Match", "*")
	answer, err := http.DefaultClient.Do(request)
	if err != nil || answer.StatusCode != 200 {
		t.Fatal(answer, err)
	}
	answer.Body.Close()
	b.click(".effect button", "Save…")
	b.until(`document.querySelector('dialog .changes')`)
	b.click("dialog button.primary", "Save")
	b.see("is at revision 1")
	if limit := s.limitOf(t, "login"); limit != "8/1m" {
		t.Errorf("the other change was overwritten by %s", limit)
	}
}

func TestReadersChangeNothing(t *testing.T) {
	t.Parallel()
	b := open(t, startWithTokens(t))
	b.expect("401")
	b.load("/rules/login?lang=en")
	b.fill("input[type=password]", reader)
	b.click("button", "Log in")
	b.until(`document.querySelector('textarea[name=yaml]')`)
	if !b.is(`document.querySelector('textarea').readOnly && [...document.querySelectorAll('#rule-text button')].every((one) => one.disabled)`) {
		t.Error("a reader is offered changes")
	}
}

// TestKeysAreRead: the sentence above the most refused keys.
func TestKeysAreRead(t *testing.T) {
	t.Parallel()
	b := open(t, start(t, someRules))
	b.load("/changes")
	for name, want := range map[string]string{
		`{counts: {refused: 1000}, distinct: 12400, top: [{share: .5}, {share: .3}, {share: .125}]}`:            `{"text":"abuse","keys":3,"share":0.925}`,
		`{counts: {refused: 1000}, distinct: 1000, top: [{share: .02}]}`:                                        `{"text":"spread","keys":1,"share":0.02}`,
		`{counts: {refused: 0}, distinct: 10, top: []}`:                                                         `{"text":"quiet"}`,
		`{counts: {refused: 5}, distinct: 0, top: []}`:                                                          `{"text":""}`,
		`{counts: {refused: 0, shadow_refused: 7}, distinct: 200, top: [{share: 1}]}`:                           `{"text":"abuse","keys":1,"share":1}`,
		`{counts: {refused: 1000}, distinct: 20, top: [{share: .5}, {share: .3}, {share: .05}, {share: .125}]}`: `{"text":"spread","keys":4,"share":0.5}`,
	} {
		got := value[string](b, `import('/console/static/verdict.js').then(({verdict}) => JSON.stringify(verdict(`+name+`)))`)
		if got != want {
			t.Errorf("%s is read as %s, not as %s", name, got, want)
		}
	}
}

// TestDraftIsKeptAndChangeReverts: the text of an edit is there after another page, and what is saved for a while says
// until when, and is kept by a click.
func TestDraftIsKeptAndChangeReverts(t *testing.T) {
	t.Parallel()
	s := start(t, someRules)
	b := open(t, s)
	b.goTo("/rules/login?lang=en")
	b.edit("limit: 5/1m", "limit: 7/1m")
	b.see("This browser keeps the text")
	b.click("header nav a", "Health")
	b.until(`document.querySelector('h1')?.innerText === 'Health'`)
	b.goTo("/rules/login?lang=en")
	b.see("login: limit 5/1m -> 7/1m")
	b.click(".effect button", "Save…")
	b.until(`document.querySelector('dialog .changes')`)
	b.until(`document.querySelector('dialog select').disabled && (document.querySelector('dialog input[type=checkbox]').click() || true)`)
	b.until(`!document.querySelector('dialog select').disabled`)
	b.picture("revert-dialog-en")
	b.click("dialog button.primary", "Save")
	b.see("reverts at")
	b.see("29 min")
	b.usable("a change that reverts")
	b.picture("revert-en")
	if b.is(`Boolean(localStorage.getItem('weir.draft.login'))`) {
		t.Error("the draft of a saved rule is kept")
	}
	b.goTo("/rules/login?lang=zh")
	b.see("自动撤回")
	b.look(390, "dark")
	b.fits("a change that reverts, narrow")
	b.picture("revert-zh-narrow")
	b.look(1440, "light")
	b.goTo("/rules/login?lang=en")
	b.click(".trial button", "Keep it…")
	b.click("dialog button.primary", "Keep it")
	b.see("The change of login is kept.")
	b.until(`!document.querySelector('.trial')`)
}
