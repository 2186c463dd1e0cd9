package accesslog

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"time"
)

// Generate writes a synthetic log: a few busy addresses and many that appear once, IPv4 and
// IPv6, over some days. The same seed makes the same log everywhere.
func Generate(w io.Writer, seed uint64, requests int) error {
	random := rand.New(rand.NewPCG(seed, 0))
	out := bufio.NewWriter(w)
	crowd := rand.NewZipf(random, 1.1, 4, 2000)
	pages := rand.NewZipf(random, 1.2, 1, 300)
	at := time.Date(2026, time.March, 2, 10, 5, 3, 0, time.UTC)
	for range requests {
		at = at.Add(time.Duration(random.IntN(50)) * time.Second)
		fmt.Fprintf(out, "%s - - [%s] \"%s %s HTTP/1.1\" 200 %d \"-\" \"%s\"\n", address(crowd.Uint64()),
			at.Format("02/Jan/2006:15:04:05 -0700"), method(random), target(pages.Uint64()), random.IntN(300_000),
			"Mozilla/5.0 (made up)")
	}
	return out.Flush()
}

// address is one of the ranges for documentation and private use, always the same for n.
func address(n uint64) string {
	if n%10 == 9 {
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(n >> 8), byte(n), 15: 1}).String()
	}
	return netip.AddrFrom4([4]byte{10, 20, byte(n >> 8), byte(n)}).String()
}

func method(random *rand.Rand) string {
	switch random.IntN(100) {
	case 0:
		return "POST"
	case 1:
		return "HEAD"
	}
	return "GET"
}

func target(n uint64) string {
	switch n % 4 {
	case 0:
		return fmt.Sprintf("/presentations/%d/images/page.png", n)
	case 1:
		return fmt.Sprintf("/blog/tags/year%%20%d", n)
	case 2:
		return fmt.Sprintf("/images/%d.png", n)
	}
	return fmt.Sprintf("/?flav=rss20&n=%d", n)
}
