package memstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// TestZeroStoreSaysWhatMakesIt, where a limiter is made of it.
func TestZeroStoreSaysWhatMakesIt(t *testing.T) {
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, "must be made by New") {
			t.Errorf("it panics with %s", said)
		}
	}()
	weir.New(new(memstore.Store), "api", weir.PerMinute(1))
}
