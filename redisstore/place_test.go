package redisstore_test

import (
	"strconv"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/redisstore"
)

// Place is of the slot in which the state of the last claim lies, also where a key has a tag
// of its own.
func TestPlace(t *testing.T) {
	seen := make(map[int]bool)
	for i := range 2000 {
		key := strconv.Itoa(i)
		place := redisstore.Place([]weir.Claim{{Key: "GLOBAL"}, {Key: key}})
		if want := int(redisstore.Slot("weir:limit:b:{"+key+"}")) * redisstore.Places / 16384; place != want {
			t.Fatalf("the place of %s is %d, want %d", key, place, want)
		}
		if tagged := redisstore.Place([]weir.Claim{{Key: "{" + key + "}:search"}}); tagged != place {
			t.Fatalf("with a tag it is %d, without %d", tagged, place)
		}
		seen[place] = true
	}
	if len(seen) != redisstore.Places {
		t.Errorf("2000 keys are in %d places of %d", len(seen), redisstore.Places)
	}
}
