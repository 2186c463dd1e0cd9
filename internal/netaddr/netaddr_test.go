package netaddr_test

import (
	"errors"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/netaddr"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{ // "" is refused
		"192.0.2.7": "192.0.2.7/32", "10.0.0.0/8": "10.0.0.0/8", "0.0.0.0/0": "0.0.0.0/0",
		"::1": "::1/128", "2001:db8::/32": "2001:db8::/32", "fe80::1%eth0": "fe80::1/128",
		"::ffff:192.0.2.7": "192.0.2.7/32", "::ffff:10.0.0.0/104": "10.0.0.0/8",
		"": "", "10": "", "10.0.0": "", "10.0.0.0/33": "", "10.1.2.3/8": "", "010.0.0.1": "", "::ffff:0:0/90": "",
		"fe80::1%eth0/64": "", "fe80::1%eth0/128": "", "localhost": "", " 10.0.0.1": "", "10.0.0.0/": "",
	} {
		prefix, err := netaddr.Parse(text)
		var input *weir.InputError
		if (want == "") != errors.As(err, &input) || want != "" && prefix.String() != want {
			t.Errorf("%q is %v (%v), want %q", text, prefix, err, want)
		}
	}
}
