package accesslog

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/netaddr"
)

// A field is the kind of a value in a line.
type field uint8

const (
	skip field = iota
	client
	clientAndPort // HAProxy writes no brackets around IPv6
	lastForwarded // X-Forwarded-For, whose last address is that of the connection
	user
	method
	host
	target
	path
	query
	request // a whole request line
	start
	end
	took // seconds
	tookMillis
	tookMicros
	tookNanos
	status
	size
	agent
	header
	headers // a JSON object of names and values
	domain
	descriptors // a JSON list, as proto3 has them
	addend
)

var (
	errNotHTTP = errors.New("not an HTTP request")
	errNoTime  = errors.New("no time")
	errTime    = errors.New("the time is not readable")
	errTook    = errors.New("the duration is not a number")
	errStatus  = errors.New("the status is not a number from 100 to 999")
	errSize    = errors.New("the number of bytes is not a number")
)

// none stands for the time of a line without one.
const none = math.MinInt64

// A draft collects the values of a line in a record.
type draft struct {
	*Record
	clock       clock
	texts       texts
	start, end  int64
	path, query string
	isHTTP      bool  // the format has a method or a target
	untimed     int64 // of the last request without a time
}

func (d *draft) begin(r *Record) {
	*r = Record{Took: Unknown, Status: Unknown, Bytes: Unknown, Hits: Unknown, Fields: r.Fields[:0]}
	d.Record, d.start, d.end, d.path, d.query = r, none, none, "", ""
}

// set takes a value that is not missing.
func (d *draft) set(f field, name, text string) (err error) {
	switch f {
	case client:
		d.Client = address(text)
	case clientAndPort: // perhaps after what syslog writes
		text = text[strings.LastIndexByte(text, ' ')+1:]
		d.Client = address(text[:max(0, strings.LastIndexByte(text, ':'))])
	case lastForwarded:
		d.Client = address(strings.TrimSpace(text[strings.LastIndexByte(text, ',')+1:]))
		d.Fields = append(d.Fields, Field{name, text})
	case user:
		d.User = text
	case method:
		d.Method = text
	case host:
		d.Host = text
	case target:
		d.setTarget(text)
	case path:
		d.path = text
	case query:
		d.query = strings.TrimPrefix(text, "?") // of Apache
	case request:
		err = d.setRequest(text)
	case domain:
		d.Domain = text
	case descriptors:
		err = d.setDescriptors(text)
	case agent:
		d.Agent = text
		d.Fields = append(d.Fields, Field{name, text})
	case header:
		d.Fields = append(d.Fields, Field{name, text})
	default:
		err = d.setNumber(f, text)
	}
	return err
}

func (d *draft) setNumber(f field, text string) error {
	text = strings.TrimPrefix(text, "+") // of HAProxy, which logs before the end with option logasap
	ok, err := false, errTook
	switch f {
	case start:
		d.start, ok = d.clock.read(text)
		err = errTime
	case end:
		d.end, ok = d.clock.read(text)
		err = errTime
	case took:
		d.Took, ok = duration(text, time.Second)
	case tookMillis:
		d.Took, ok = duration(text, time.Millisecond)
	case tookMicros:
		d.Took, ok = duration(text, time.Microsecond)
	case tookNanos:
		d.Took, ok = duration(text, time.Nanosecond)
	case status:
		d.Status, ok = statusCode(text)
		err = errStatus
	case size:
		d.Bytes, ok = decimal(text, 1)
		err = errSize
	case addend:
		d.Hits, ok = decimal(text, 1)
		err = errDescriptors
	default:
		return nil
	}
	if ok {
		return nil
	}
	return err
}

// finish computes what follows from other values.
func (d *draft) finish() error {
	if d.Target == "" && d.path != "" {
		d.setTarget(d.path)
	}
	if d.query != "" && d.Target != "" && strings.IndexByte(d.Target, '?') < 0 {
		d.Target = d.texts.join(d.Target, "?", d.query)
	}
	if d.isHTTP && (d.Target == "" || d.Method != "" && !isToken(d.Method)) {
		return errNotHTTP
	}
	switch {
	case d.start != none:
		d.Time = d.start
		if d.end != none && d.Took == Unknown && d.end >= d.start {
			d.Took = d.end - d.start
		}
	case d.end == none:
		return errNoTime
	case d.Took != Unknown:
		d.Time = d.end - d.Took
	default:
		d.Time = d.end
	}
	return nil
}

// setRequest takes GET /path HTTP/1.1; the target may have spaces in it, and HTTP/0.9 has no version.
func (d *draft) setRequest(text string) error {
	name, rest, found := strings.Cut(text, " ")
	if !found || !isToken(name) {
		return errNotHTTP
	}
	if at := strings.LastIndexByte(rest, ' '); at > 0 && strings.HasPrefix(rest[at+1:], "HTTP/") {
		rest = rest[:at]
	} else if rest[:min(1, len(rest))] != "/" || strings.Contains(rest, " ") {
		return errNotHTTP
	}
	d.Method = name
	d.setTarget(rest)
	return nil
}

// setTarget takes the host out of the absolute form, http://host/path.
func (d *draft) setTarget(text string) {
	if text == "" || text[0] == '/' {
		d.Target = text
		return
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found || strings.ContainsAny(scheme, "/?") {
		d.Target = text
		return
	}
	authority := rest
	d.Target = "/"
	if at := strings.IndexAny(rest, "/?"); at >= 0 {
		authority, d.Target = rest[:at], rest[at:]
	}
	if d.Target[0] == '?' {
		d.Target = "/" + d.Target
	}
	if d.Host == "" {
		d.Host = authority
	}
}

// isToken is RFC 9110's: a method is one.
func isToken(text string) bool {
	if text == "" || text == "-" {
		return false
	}
	for i := range len(text) {
		c := text[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return true
}

// address reads 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1]:80 and fe80::1%eth0. The zero Addr is no address:
// a name, or the path of a socket.
func address(text string) netip.Addr {
	if text == "" {
		return netip.Addr{}
	}
	if text[0] == '[' {
		inside, _, _ := strings.Cut(text[1:], "]")
		text = inside
	} else if at := strings.IndexByte(text, ':'); at > 0 && strings.IndexByte(text[at+1:], ':') < 0 {
		text = text[:at]
	}
	parsed, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return netaddr.Plain(parsed)
}

// statusCode is Unknown for 0 and -1, which proxies write when no response was sent.
func statusCode(text string) (int, bool) {
	switch strings.TrimLeft(text, "0") {
	case "", "-1":
		return Unknown, true
	}
	n, ok := decimal(text, 1)
	return int(n), ok && len(text) == 3 && n >= 100
}

// duration is in microseconds. A text may have its own unit, as 1.5ms. A negative one is Unknown: load balancers write
// it for requests that never got that far.
func duration(text string, unit time.Duration) (int64, bool) {
	if text == "" {
		return 0, false
	}
	if text[0] == '-' {
		return Unknown, true
	}
	if last := text[len(text)-1]; last == 's' {
		parsed, err := time.ParseDuration(text)
		return parsed.Microseconds(), err == nil
	}
	nanos, ok := decimal(text, int64(unit))
	return nanos / 1000, ok
}

// decimal is a number with a fraction, times unit. Digits that are too small to matter are not rounded.
func decimal(text string, unit int64) (int64, bool) {
	whole, i := int64(0), 0
	for ; i < len(text) && text[i]-'0' <= 9; i++ {
		if whole > math.MaxInt64/10-1 {
			return 0, false
		}
		whole = whole*10 + int64(text[i]-'0')
	}
	if i == 0 || whole > math.MaxInt64/unit-1 {
		return 0, false
	}
	whole *= unit
	if i == len(text) {
		return whole, true
	}
	if text[i] != '.' {
		return 0, false
	}
	for _, c := range []byte(text[i+1:]) {
		if c-'0' > 9 {
			return 0, false
		}
		unit /= 10
		whole += int64(c-'0') * unit
	}
	return whole, true
}
