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

var fairWindowKind = kind{'W', "fair_window", 5, fairWindowArgs, fairWindowDecision, nil, fairWindowStanding}

var fairLeaseKind = kind{'H', "fair_leases", 6, fairLeaseArgs, fairLeaseDecision, nil, fairLeaseStanding}

// addFair adds the numbers of a fair limit, and the member's weight, 8 bytes of its own, and one of 512 fields. Both
// come from the SHA-256 of the member's name: nobody can find another name with the same bytes.
func (a *arguments) addFair(c *weir.Claim) {
	sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(c.Member), len(c.Member)))
	a.text = pack(a.text, c.Limit.Capacity(), c.Limit.Above())
	a.text = binary.LittleEndian.AppendUint32(a.text, uint32(c.Limit.MaxKeys()))
	a.text = binary.LittleEndian.AppendUint16(a.text, uint16(max(1, c.Weight)))
	a.text = append(a.text, sum[:8]...)
	a.text = append(a.text, sum[8]&1, sum[9])
	a.end()
}

func fairWindowArgs(a *arguments, c *weir.Claim) {
	windowArgs(a, c)
	a.addFair(c)
}

// partOf is the standing of a member with the usage own. all is the sum of the weights: negative if the member is
// beyond MaxKeys.
func partOf(c *weir.Claim, own, all int64) weir.Standing {
	s := weir.Standing{Own: own, Weights: all}
	weight := max(1, c.Weight)
	if s.Others = all < 0; s.Others {
		s.Weights, weight = -all, 1
	}
	s.Share = c.Limit.Capacity() * weight / max(1, s.Weights)
	return s
}

func fairWindowState(reply []redisconn.Value) window.State {
	return window.State{Start: reply[0].Int, Count: reply[1].Int, Until: reply[2].Int}
}

func fairWindowStanding(c *weir.Claim, reply []redisconn.Value, now int64) weir.Standing {
	return fair.StandingIn(c.Limit, fairWindowState(reply), partOf(c, reply[3].Int, reply[4].Int), now)
}

func fairWindowDecision(c *weir.Claim, reply []redisconn.Value, now int64) weir.Decision {
	standing := fairWindowStanding(c, reply, now)
	return fair.Decision(c.Limit, fairWindowState(reply), &standing, c.Cost, c.Floor, now)
}

func fairLeaseArgs(a *arguments, c *weir.Claim) {
	leaseArgs(a, c)
	a.addFair(c)
}

func fairLeaseStanding(c *weir.Claim, reply []redisconn.Value, _ int64) weir.Standing {
	s := partOf(c, reply[4].Int, reply[5].Int)
	s.Used, s.Open = reply[1].Int, c.Limit.Above()
	return s
}

func fairLeaseDecision(c *weir.Claim, reply []redisconn.Value, now int64) weir.Decision {
	summary := concurrency.Summary{Held: reply[1].Int, Last: reply[2].Int, Frees: reply[3].Int}
	standing := fairLeaseStanding(c, reply, now)
	return fair.DecisionOfLeases(c.Limit, summary, &standing, c.Cost, c.Floor, now)
}
