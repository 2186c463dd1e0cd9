package web_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/server/internal/web"
)

func newSessions(t *testing.T, secrets ...string) *web.Access {
	t.Helper()
	c := web.Config{Sessions: true}
	for i, secret := range secrets {
		c.Tokens = append(c.Tokens, web.Token{Name: "token-" + string(rune('a'+i)), Secret: secret, Write: i == 0})
	}
	access, err := web.NewAccess(c)
	if err != nil {
		t.Fatal(err)
	}
	return access
}

func loggedIn(t *testing.T, access *web.Access, token string) *http.Request {
	t.Helper()
	cookie, ok := access.Login(token)
	if !ok {
		t.Fatalf("no session for %q", token)
	}
	r := httptest.NewRequest(http.MethodGet, "/v1/admin/rules", nil)
	r.AddCookie(cookie)
	return r
}

func TestSessionStandsForItsToken(t *testing.T) {
	access := newSessions(t, "the-token-that-writes", "the-token-that-reads")
	r := loggedIn(t, access, "the-token-that-reads")
	if name, err := access.Identify(r, false); name != "token-b" || err != nil {
		t.Errorf("read: %q, %v", name, err)
	}
	if _, err := access.Identify(r, true); err == nil || err.(*web.Problem).Status != http.StatusForbidden {
		t.Errorf("a read-only token writes: %v", err)
	}
	if _, err := access.Identify(loggedIn(t, access, "the-token-that-writes"), true); err != nil {
		t.Error(err)
	}
	other := newSessions(t, "another-token-first", "the-token-that-reads")
	if name, err := other.Identify(r, false); name != "token-b" || err != nil {
		t.Errorf("another server with the same token: %q, %v", name, err)
	}
	removed := newSessions(t, "the-token-that-writes")
	if _, err := removed.Identify(r, false); err == nil {
		t.Error("the token is gone, and its session is accepted")
	}
	if _, ok := access.Login("the-token-that-read"); ok {
		t.Error("a wrong token logs in")
	}
}

func TestSessionCookieIsOutOfReach(t *testing.T) {
	cookie, _ := newSessions(t, "the-token-that-writes").Login("the-token-that-writes")
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/v1/admin/" || cookie.MaxAge <= 0 {
		t.Errorf("%+v", cookie)
	}
	if strings.Contains(cookie.Value, "token") || len(cookie.Value) < 50 {
		t.Errorf("the value is %q", cookie.Value)
	}
}

func TestChangedSessionIsRefused(t *testing.T) {
	access := newSessions(t, "the-token-that-writes")
	cookie, _ := access.Login("the-token-that-writes")
	good := cookie.Value
	for i := range good {
		for _, other := range []byte{'A', 'B'} {
			if good[i] == other {
				continue
			}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.AddCookie(&http.Cookie{Name: cookie.Name, Value: good[:i] + string(other) + good[i+1:]})
			if _, err := access.Identify(r, false); err == nil {
				t.Fatalf("character %d is %c instead of %c, and the session is accepted", i, other, good[i])
			}
		}
	}
	without, err := web.NewAccess(web.Config{Tokens: []web.Token{{Secret: "the-token-that-writes", Write: true}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := without.Identify(loggedIn(t, access, "the-token-that-writes"), false); err == nil {
		t.Error("an API without sessions accepts one")
	}
}

func TestSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		access := newSessions(t, "the-token-that-writes")
		r := loggedIn(t, access, "the-token-that-writes")
		time.Sleep(11 * time.Hour)
		if _, err := access.Identify(r, false); err != nil {
			t.Errorf("after 11 h: %v", err)
		}
		time.Sleep(time.Hour + time.Second)
		if _, err := access.Identify(r, false); err == nil {
			t.Error("it is accepted after 12 h")
		}
	})
}

func TestLogoutEndsOneSession(t *testing.T) {
	access := newSessions(t, "the-token-that-writes")
	r, other := loggedIn(t, access, "the-token-that-writes"), loggedIn(t, access, "the-token-that-writes")
	if !access.HasSession(r) {
		t.Error("the session is not seen")
	}
	if cookie := access.Logout(r); cookie.MaxAge >= 0 || cookie.Value != "" || cookie.Path != "/v1/admin/" {
		t.Errorf("the browser keeps its cookie: %+v", cookie)
	}
	if _, err := access.Identify(r, false); err == nil || access.HasSession(r) {
		t.Error("a copy of the cookie is accepted after logout")
	}
	if _, err := access.Identify(other, false); err != nil {
		t.Errorf("another session of the token ended: %v", err)
	}
}
