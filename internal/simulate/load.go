package simulate

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/rules"
)

// A Load is a stream of requests that does not wait for answers.
type Load struct {
	Rate  float64 // requests a second, on average, at random instants
	Keys  int     // how many different clients there are
	Zipf  float64 // the nth client sends in proportion to 1/n^Zipf; 0: all the same
	Burst float64 // in the first For of each Every, the rate is that many times as high; 0: no bursts
	For   time.Duration
	Every time.Duration
	Cost  *int64 // units of a request, for rules without a fixed cost

	// Rule, if not "", is a rule that the requests meet: it fills in what Request leaves out. The rest is GET of /.
	Rule string
	// Request is what is sent. In its texts {n} stands for the number of the client, from 1.
	Request rules.Request
	Values  []Value
}

// A Value is a header field, a query parameter, a cookie, a descriptor or a field of the body of a request.
type Value struct{ Kind, Name, Text string }

// number stands for the number of a client.
const number = "{n}"

// A source draws the requests of a load.
type source struct {
	*Load
	random *rand.Rand
	shares []float64 // running sums of the clients' shares
	next   time.Duration
}

func newSource(l *Load, seed, index uint64) *source {
	s := &source{Load: l, random: rand.New(rand.NewPCG(seed, 1000+index))}
	sum := 0.0
	for n := range l.Keys {
		sum += math.Pow(float64(n+1), -l.Zipf)
		s.shares = append(s.shares, sum)
	}
	s.advance()
	return s
}

// advance draws the time of the next request. A gap that crosses a change of the rate goes on at the new rate.
func (s *source) advance() {
	units := s.random.ExpFloat64()
	for {
		rate, until := s.rate(s.next)
		gap := time.Duration(units / rate * float64(time.Second))
		if until == 0 || gap < until-s.next {
			s.next = (s.next + gap).Truncate(time.Microsecond)
			return
		}
		units -= (until - s.next).Seconds() * rate
		s.next = until
	}
}

// rate is the rate at a time, and when it changes; 0: never.
func (s *source) rate(at time.Duration) (rate float64, until time.Duration) {
	if s.Burst == 0 {
		return s.Rate, 0
	}
	begun := at.Truncate(s.Every)
	if at-begun < s.For {
		return s.Rate * s.Burst, begun + s.For
	}
	return s.Rate, begun + s.Every
}

// client draws the number of a client, from 0.
func (s *source) client() int {
	x := s.random.Float64() * s.shares[len(s.shares)-1]
	return min(sort.SearchFloat64s(s.shares, x), len(s.shares)-1)
}

// request is that of a client.
func (l *Load) request(client int) *rules.Request {
	r := l.Request
	if !r.Client.IsValid() {
		r.Client = address(client)
	}
	n := strconv.Itoa(client + 1)
	for _, text := range []*string{&r.Host, &r.Path, &r.Route, &r.User, &r.Service} {
		*text = strings.ReplaceAll(*text, number, n)
	}
	if len(l.Values) > 0 {
		r.Attributes = attributes{l.Values, n}
	}
	return &r
}

// address is that of a client: 10.0.0.1 and so on.
func address(client int) netip.Addr {
	n := client + 1
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

// attributes are the values of a request.
type attributes struct {
	values []Value
	number string
}

func (a attributes) value(kind, name string) string {
	i := slices.IndexFunc(a.values, func(v Value) bool { return v.Kind == kind && v.Name == name })
	if i < 0 {
		return ""
	}
	return strings.ReplaceAll(a.values[i].Text, number, a.number)
}

// Header implements rules.Attributes, as the next methods do.
func (a attributes) Header(name string) string     { return a.value("header", name) }
func (a attributes) Query(name string) string      { return a.value("query", name) }
func (a attributes) Cookie(name string) string     { return a.value("cookie", name) }
func (a attributes) Descriptor(name string) string { return a.value("descriptor", name) }

// Body is a field of the body.
func (a attributes) Body(name string) string { return a.value("body", name) }
