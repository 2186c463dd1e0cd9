package xdssource

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/ratelimitconf"
)

// maxDepth is the most descriptors inside each other.
const maxDepth = 32

// A decoder reads messages RateLimitConfig. Generated code would make an object of over a hundred bytes of each empty
// descriptor, which is two bytes on the wire, before anybody can count them.
type decoder struct {
	left int // descriptors that may follow
}

func newDecoder() *decoder { return &decoder{left: bounds.Rules} }

func (d *decoder) config(message []byte) (c *ratelimitconf.Config, err error) {
	c = new(ratelimitconf.Config)
	return c, fields(message, func(v value) error {
		switch v.number {
		case 1:
			return v.text(&c.Name)
		case 2:
			return v.text(&c.Domain)
		case 3:
			return d.descriptor(v, 1, &c.Descriptors)
		}
		return nil
	})
}

// descriptor appends a descriptor and its descendants.
func (d *decoder) descriptor(from value, depth int, to *[]ratelimitconf.Descriptor) error {
	if from.kind != protowire.BytesType {
		return nil
	}
	if depth > maxDepth {
		return fmt.Errorf("descriptors are nested more than %d deep", maxDepth)
	}
	if d.left--; d.left < 0 {
		return fmt.Errorf("more than %d descriptors", bounds.Rules)
	}
	var one ratelimitconf.Descriptor
	err := fields(from.bytes, func(v value) error {
		switch v.number {
		case 1:
			return v.text(&one.Key)
		case 2:
			return v.text(&one.Value)
		case 3:
			return limit(v, &one.Limit)
		case 4:
			return d.descriptor(v, depth+1, &one.Descriptors)
		case 5:
			v.truth(&one.ShadowMode)
		case 6:
			v.truth(&one.DetailedMetric)
		}
		return nil
	})
	*to = append(*to, one)
	return err
}

// units are the values of the enumeration RateLimitUnit.
var units = [...]string{"UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"}

// limit reads a RateLimitPolicy. A second one is merged into the first, as protobuf requires.
func limit(from value, to **ratelimitconf.Limit) error {
	if from.kind != protowire.BytesType {
		return nil
	}
	if *to == nil {
		*to = &ratelimitconf.Limit{Unit: units[0]}
	}
	l := *to
	return fields(from.bytes, func(v value) error {
		switch v.number {
		case 1:
			v.unit(&l.Unit)
		case 2:
			v.count(&l.RequestsPerUnit)
		case 3:
			v.truth(&l.Unlimited)
		case 4:
			return v.text(&l.Name)
		case 5:
			return replaced(v, &l.Replaces)
		}
		return nil
	})
}

// replaced reads a RateLimitReplace.
func replaced(from value, to *[]string) error {
	if from.kind != protowire.BytesType {
		return nil
	}
	var name string
	err := fields(from.bytes, func(v value) error {
		if v.number == 1 {
			return v.text(&name)
		}
		return nil
	})
	*to = append(*to, name)
	return err
}

// A value is a field of a message. A known field of another kind counts as unknown, and is left out.
type value struct {
	number protowire.Number
	kind   protowire.Type
	varint uint64
	bytes  []byte
}

func fields(message []byte, each func(value) error) error {
	for len(message) > 0 {
		v := value{}
		n := 0
		if v.number, v.kind, n = protowire.ConsumeTag(message); n < 0 || !v.number.IsValid() {
			return protowire.ParseError(min(n, -1))
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(v.number, v.kind, message); n < 0 {
			return protowire.ParseError(n)
		}
		switch v.kind {
		case protowire.VarintType:
			v.varint, _ = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			v.bytes, _ = protowire.ConsumeBytes(message)
		}
		message = message[n:]
		if err := each(v); err != nil {
			return err
		}
	}
	return nil
}

var errText = errors.New("a text is not UTF-8")

func (v value) text(to *string) error {
	if v.kind != protowire.BytesType {
		return nil
	}
	if !utf8.Valid(v.bytes) {
		return errText
	}
	*to = string(v.bytes)
	return nil
}

func (v value) truth(to *bool) {
	if v.kind == protowire.VarintType {
		*to = v.varint != 0
	}
}

func (v value) count(to *uint32) {
	if v.kind == protowire.VarintType {
		*to = uint32(v.varint)
	}
}

// unit reads a unit; one that has no name is its number.
func (v value) unit(to *string) {
	if v.kind != protowire.VarintType {
		return
	}
	n := int32(v.varint)
	if *to = strconv.Itoa(int(n)); n >= 0 && int(n) < len(units) {
		*to = units[n]
	}
}
