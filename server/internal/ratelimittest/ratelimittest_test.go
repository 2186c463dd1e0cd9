package ratelimittest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/server/internal/ratelimittest"
)

// TestRealService asks the real service for one decision, and ends it.
func TestRealService(t *testing.T) {
	t.Parallel()
	program := ratelimittest.Real(t)
	place := ratelimittest.NewPlace(t, redistest.Start(t).Addr(), map[string]string{"shop.yaml": `domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
`})
	service := place.Start(program)
	service.Await()
	body := `{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]}`
	response, err := http.Post("http://"+place.HTTP+"/json", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(text), `"limitRemaining":2`) {
		t.Errorf("%s: %s, %v", response.Status, text, err)
	}
	service.Stop()
}
