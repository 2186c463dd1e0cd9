package redisstore

import (
	"crypto/sha256"
	"encoding/binary"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/concurrency"
	"github.com/weirproject/weir/internal/algorithm/fair"
	"github.com/weirproject/weir/internal/algorithm/window"
	"github.com/weirproject/weir/internal/redisconn"
)

var fairWindowKind = kind{'W', "fair_window", 5, fairWindowArgs, fairWindowDecision, nil}

var fairLeaseKind = kind{'H', "fair_leases", 6, fairLeaseArgs, fairLeaseDecision, nil}

// addFair adds the numbers of a fair limit, and the member's weight and 8 bytes of its own. It returns the first bytes
// of the SHA-256 of the member's name: another name with the same bytes cannot be found.
func (a *arguments) addFair(c *weir.Claim) (sum [10]byte) {
	whole := sha256.Sum256(unsafe.Slice(unsafe.StringData(c.Member), len(c.Member)))
	copy(sum[:], whole[:])
	a.text = pack(a.text, c.Limit.Capacity(), c.Limit.Above())
	a.text = binary.LittleEndian.AppendUint32(a.text, uint32(c.Limit.MaxKeys()))
	a.text = binary.LittleEndian.AppendUint16(a.text, uint16(max(1, c.Weight)))
	a.text = append(a.text, sum[:8]...)
	a.end()
	return sum
}

func fairWindowArgs(a *arguments, c *weir.Claim) {
	windowArgs(a, c)
	sum := a.addFair(c)
	a.text = append(a.text, sum[8]&1, sum[9]) // one of 512 fields
	a.end()
}

func fairWindowDecision(c *weir.Claim, reply []redisconn.Value, now int64) weir.Decision {
	state := window.State{Start: reply[0].Int, Count: reply[1].Int, Until: reply[2].Int}
	standing := fair.Standing{Own: reply[3].Int, Share: reply[4].Int}
	return fair.Decision(c.Limit, state, standing, c.Cost, c.Floor, now)
}

func fairLeaseArgs(a *arguments, c *weir.Claim) {
	leaseArgs(a, c)
	a.addFair(c)
}

func fairLeaseDecision(c *weir.Claim, reply []redisconn.Value, now int64) weir.Decision {
	summary := concurrency.Summary{Held: reply[1].Int, Last: reply[2].Int, Frees: reply[3].Int}
	standing := fair.Standing{Own: reply[4].Int, Share: reply[5].Int}
	return fair.DecisionOfLeases(c.Limit, summary, standing, c.Cost, c.Floor, now)
}
