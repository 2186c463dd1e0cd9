package accesslog

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// A Descriptor is one of a RateLimitRequest of Envoy.
type Descriptor struct {
	Keys, Values []string // of its entries, in order
	Hits         int64    // Unknown: those of the request
}

var (
	errDescriptors = errors.New("the descriptors are not those of a RateLimitRequest")
	errOwnLimit    = errors.New("a descriptor has a limit of its own, which no rule has")
	errNegative    = errors.New("a descriptor gives hits back, which a replay does not")
)

// A hits is a number in proto3 JSON, in which those of 64 bits are texts.
type hits int64

// UnmarshalJSON implements json.Unmarshaler.
func (h *hits) UnmarshalJSON(text []byte) error {
	n, err := strconv.ParseInt(strings.Trim(string(text), `"`), 10, 53)
	if err != nil || n < 0 {
		return errDescriptors
	}
	*h = hits(n)
	return nil
}

// setDescriptors reads the list of descriptors in proto3 JSON, in which fields may have either of two names. The entry
// remote_address is the client.
func (d *draft) setDescriptors(text string) error {
	var list []struct {
		Entries  []struct{ Key, Value string }
		Limit    json.RawMessage
		Hits     *hits `json:"hitsAddend"`
		Hits2    *hits `json:"hits_addend"`
		Negative bool  `json:"isNegativeHits"`
		Also     bool  `json:"is_negative_hits"`
	}
	if json.Unmarshal([]byte(text), &list) != nil || len(list) == 0 {
		return errDescriptors
	}
	for i := range list {
		given := &list[i]
		one := Descriptor{Hits: Unknown}
		switch {
		case given.Limit != nil:
			return errOwnLimit
		case given.Negative, given.Also:
			return errNegative
		case given.Hits != nil:
			one.Hits = int64(*given.Hits)
		case given.Hits2 != nil:
			one.Hits = int64(*given.Hits2)
		}
		for _, e := range given.Entries {
			one.Keys, one.Values = append(one.Keys, e.Key), append(one.Values, e.Value)
			if client, err := netip.ParseAddr(e.Value); err == nil && e.Key == "remote_address" {
				d.Client = client
			}
		}
		d.Descriptors = append(d.Descriptors, one)
	}
	return nil
}

// count gives a request without a time the next instant: such are a millisecond apart.
func (d *draft) count() {
	d.untimed += 1000
	d.start, d.clock.unit = d.untimed, time.Millisecond
}
