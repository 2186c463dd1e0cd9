package pathform_test

import (
	"errors"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/pathform"
)

func TestHost(t *testing.T) {
	for given, want := range map[string]string{ // "" is refused
		"example.com": "example.com", "example.com:443": "example.com", "example.com:": "example.com",
		"example.com.": "example.com", "example.com.:80": "example.com", "EXAMPLE.com": "EXAMPLE.com", "é": "é",
		"192.0.2.1": "192.0.2.1", "192.0.2.1:80": "192.0.2.1",
		"[::1]": "::1", "[::1]:8080": "::1", "::1": "::1", "2001:db8::1": "2001:db8::1", "[::ffff:192.0.2.1]": "::ffff:192.0.2.1",
		"": "", ".": "", "a..": "", ":80": "", "a:b": "", "a:b:80": "", "a:80:": "", "a%2e": "", "x@y": "", "x/y": "",
		"x y": "", "x,y": "", "a\\b": "", "a?b": "", "a#b": "",
		"[::1": "", "[::1]x": "", "[::1]:x": "", "::1]": "", "[]": "", "[a]": "", "[192.0.2.1]": "",
		"[fe80::1%25eth0]": "", "fe80::1%eth0": "", "::1:x": "", ":::": "",
	} {
		got, err := pathform.Host(given)
		var input *weir.InputError
		if got != want || (err == nil) != (want != "") || err != nil && !errors.As(err, &input) {
			t.Errorf("%q is %q (%v), want %q", given, got, err, want)
		}
	}
}
