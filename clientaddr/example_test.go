package clientaddr_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/weirproject/weir/clientaddr"
)

func Example() {
	clients, err := clientaddr.New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	if err != nil {
		panic(err)
	}
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		client, ok := clients.Of(r)
		fmt.Println(client, ok)
	})

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Forwarded-For", "6.6.6.6, 198.51.100.7")
	for _, peer := range []string{"10.0.0.1:40000", "203.0.113.5:40000"} {
		r.RemoteAddr = peer
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	// Output:
	// 198.51.100.7 true
	// 203.0.113.5 true
}

func ExampleMask() {
	var mask clientaddr.Mask
	fmt.Println(mask.Key(netip.MustParseAddr("192.0.2.7")))
	fmt.Println(mask.Key(netip.MustParseAddr("2001:db8:1:2:3:4:5:6")))
	// Output:
	// 192.0.2.7
	// 2001:db8:1:2::/64
}
