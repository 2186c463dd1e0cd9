package clientaddr_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
)

func mask(t *testing.T, ipv4, ipv6 int) clientaddr.Mask {
	t.Helper()
	m, err := clientaddr.NewMask(ipv4, ipv6)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMask(t *testing.T) {
	for _, c := range []struct {
		mask          clientaddr.Mask
		address, want string
	}{
		{clientaddr.Mask{}, "192.0.2.7", "192.0.2.7"},
		{clientaddr.Mask{}, "::ffff:192.0.2.7", "192.0.2.7"},
		{clientaddr.Mask{}, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{clientaddr.Mask{}, "2001:db8:1:2:ffff::", "2001:db8:1:2::/64"},
		{clientaddr.Mask{}, "fe80::1%eth0", "fe80::/64"},
		{clientaddr.Mask{}, "::", "::/64"},
		{mask(t, 24, 48), "192.0.2.7", "192.0.2.0/24"},
		{mask(t, 24, 48), "2001:db8:1:2::7", "2001:db8:1::/48"},
		{mask(t, 1, 128), "2001:db8:1:2::7", "2001:db8:1:2::7"},
		{mask(t, 1, 128), "fe80::1%eth0", "fe80::1"},
		{mask(t, 1, 1), "192.0.2.7", "128.0.0.0/1"},
		{mask(t, 1, 1), "2001:db8::", "::/1"},
	} {
		address := netip.MustParseAddr(c.address)
		if got := c.mask.Key(address); got != c.want {
			t.Errorf("%s under %v: %s, want %s", c.address, c.mask, got, c.want)
		}
		if got := string(c.mask.AppendKey([]byte("ip:"), address)); got != "ip:"+c.want {
			t.Errorf("%s appended: %s", c.address, got)
		}
		if !c.mask.Prefix(address).Contains(address.WithZone("").Unmap()) {
			t.Errorf("%s is not within %v", c.address, c.mask.Prefix(address))
		}
	}
	if mask(t, 32, 64) != (clientaddr.Mask{}) {
		t.Error("the zero mask is not /32 and /64")
	}
	if key := (clientaddr.Mask{}).Key(netip.Addr{}); key != "" || (clientaddr.Mask{}).Prefix(netip.Addr{}).IsValid() {
		t.Errorf("no address has the key %q", key)
	}
}

func TestNewMaskRefuses(t *testing.T) {
	for _, bits := range [][2]int{{0, 64}, {33, 64}, {-1, 64}, {32, 0}, {32, 129}, {32, -1 << 40}} {
		_, err := clientaddr.NewMask(bits[0], bits[1])
		var input *weir.InputError
		if !errors.As(err, &input) {
			t.Errorf("%v: %v", bits, err)
		}
	}
}

func TestMaskingAllocatesNothing(t *testing.T) {
	buffer := make([]byte, 0, 64)
	for _, text := range []string{"192.0.2.7", "2001:db8:1:2:3:4:5:6"} {
		address := netip.MustParseAddr(text)
		allocs := testing.AllocsPerRun(100, func() { buffer = clientaddr.Mask{}.AppendKey(buffer[:0], address) })
		if allocs != 0 {
			t.Errorf("%s: %v allocations", text, allocs)
		}
	}
}
