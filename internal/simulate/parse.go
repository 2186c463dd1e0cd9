package simulate

import (
	"math"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/pathform"
)

// A word reads the value of name=value, and reports whether it is allowed.
type word struct {
	allowed string
	set     func(value string) bool
}

// readWords reads words such as rate=100. other, if not nil, reads those without an entry.
func readWords(what string, list []string, words map[string]word, other func(name, value string) bool) error {
	others := ""
	if other != nil {
		others = ", and header.NAME=, query.NAME=, cookie.NAME=, descriptor.NAME=, body.NAME="
	}
	seen := make(map[string]bool)
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		w, known := words[name]
		switch {
		case seen[name]:
			return wrong(what, text, "each word once")
		case !ok || !known && (other == nil || !other(name, value)):
			return wrong(what, text, "%s", strings.Join(sortedKeys(words), "=, ")+"="+others)
		case known && !w.set(value):
			return wrong(what+": "+name, value, "%s", w.allowed)
		}
		seen[name] = true
	}
	return nil
}

func sortedKeys(words map[string]word) (list []string) {
	for name := range words {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func whole[T int | int64](to *T, least, most T) func(string) bool {
	return func(value string) bool {
		n, err := strconv.ParseInt(value, 10, 64)
		*to = T(n)
		return err == nil && n >= int64(least) && n <= int64(most)
	}
}

func decimal(to *float64, least, most float64) func(string) bool {
	return func(value string) (ok bool) {
		n, err := strconv.ParseFloat(value, 64)
		*to = n
		return err == nil && n >= least && n <= most
	}
}

func duration(to *time.Duration, least, most time.Duration) func(string) bool {
	return func(value string) bool {
		d, err := time.ParseDuration(value)
		*to = d
		return err == nil && d >= least && d <= most && d%time.Microsecond == 0
	}
}

func text(to *string) func(string) bool {
	return func(value string) bool {
		*to = value
		return value != ""
	}
}

// kinds are those of Values.
var kinds = []string{"header", "query", "cookie", "descriptor", "body"}

// ParseLoad reads a load, such as "rate=100 keys=1000 zipf=1.1 path=/login".
func ParseLoad(s string) (Load, error) {
	l := Load{Rate: 100, Keys: 100}
	r := &l.Request
	words := map[string]word{
		"rule":    {"the name of a rule, whose request it is", text(&l.Rule)},
		"rate":    {"0.01 to 1000000 requests a second", decimal(&l.Rate, 0.01, maxRate)},
		"keys":    {"1 to 1000000 clients", whole(&l.Keys, 1, maxClients)},
		"zipf":    {"0 to 5: 0 is evenly, 1 is usual", decimal(&l.Zipf, 0, maxZipf)},
		"burst":   {"1 to 1000 times the rate", decimal(&l.Burst, 1, 1000)},
		"for":     {"1ms to 24h: the time of a burst", duration(&l.For, time.Millisecond, maxDuration)},
		"every":   {"1ms to 24h: from burst to burst", duration(&l.Every, time.Millisecond, maxDuration)},
		"method":  {"a method, such as POST", text(&r.Method)},
		"path":    {"a path, such as /login", path(&r.Path)},
		"host":    {"a host, such as api.example.com", host(&r.Host)},
		"route":   {"the pattern of a route", text(&r.Route)},
		"user":    {"a user, such as u{n}", text(&r.User)},
		"service": {"a service", text(&r.Service)},
		"client":  {"an address, such as 203.0.113.7", client(&r.Client)},
		"cost": {"0 to 2^52 units", func(value string) bool {
			l.Cost = new(int64)
			return whole(l.Cost, 0, weir.MaxUnits)(value)
		}},
	}
	err := readWords("load", strings.Fields(s), words, func(name, value string) bool {
		kind, of, ok := strings.Cut(name, ".")
		if kind == "header" {
			of = textproto.CanonicalMIMEHeaderKey(of)
		}
		l.Values = append(l.Values, Value{kind, of, value})
		return ok && of != "" && slices.Contains(kinds, kind)
	})
	if err == nil && (l.Burst > 0 || l.For > 0 || l.Every > 0) && !(l.Burst > 0 && l.For > 0 && l.Every > l.For) {
		err = wrong("load", s, "burst, for and every together, and an every that is longer than for")
	}
	return l, err
}

func path(to *string) func(string) bool {
	return func(value string) bool {
		form, err := pathform.Form{}.Path(value)
		*to = form
		return err == nil && strings.HasPrefix(form, "/")
	}
}

func host(to *string) func(string) bool {
	return func(value string) bool {
		form, err := pathform.Host(value)
		*to = form
		return err == nil
	}
}

func client(to *netip.Addr) func(string) bool {
	return func(value string) bool {
		address, err := netip.ParseAddr(value)
		*to = address.Unmap().WithZone("")
		return err == nil
	}
}

// ParseFault reads a fault, such as "down 60s..90s lose=1s".
func ParseFault(s string) (f Fault, err error) {
	list := strings.Fields(s)
	if len(list) < 2 || !slices.Contains(faultKinds, FaultKind(list[0])) {
		return f, wrong("fault", s, "a kind and a time: down, hang, cut, slow or error, and 60s..90s")
	}
	f.Kind = FaultKind(list[0])
	from, to, ok := strings.Cut(list[1], "..")
	if !ok || !duration(&f.From, 0, maxDuration)(from) || !duration(&f.To, 0, maxDuration)(to) {
		return f, wrong("fault: time", list[1], "two times after the start, such as 60s..90s or 1m..1m30s")
	}
	words := map[string]word{}
	switch f.Kind {
	case Down:
		words["lose"] = word{"all, or the time before the fault whose writes are lost, such as 1s", lose(&f.Lose)}
	case Slow:
		words["by"] = word{"1µs to 1m: what a round trip takes longer", duration(&f.By, 1, maxLatency)}
	case Failing:
		words["share"] = word{"1% to 100%", percent(&f.Share)}
	}
	if f.Kind != Down && f.Kind != Hang {
		words["nodes"] = word{"numbers of nodes from 1, such as 1,3", list1(&f.Nodes)}
	}
	if err = readWords("fault", list[2:], words, nil); err != nil {
		return f, err
	}
	switch {
	case f.Kind == Slow && f.By == 0:
		err = wrong("fault", s, "by= too, such as slow 60s..90s by=40ms")
	case f.Kind == Failing && f.Share == 0:
		err = wrong("fault", s, "share= too, such as error 60s..90s share=20%%")
	}
	return f, err
}

func lose(to *time.Duration) func(string) bool {
	return func(value string) bool {
		if value == "all" {
			*to = math.MaxInt64 / 2
			return true
		}
		return duration(to, time.Microsecond, maxDuration)(value)
	}
}

func percent(to *float64) func(string) bool {
	return func(value string) bool {
		ok := strings.HasSuffix(value, "%") && decimal(to, 0.01, 100)(strings.TrimSuffix(value, "%"))
		*to /= 100
		return ok
	}
}

// list1 reads a list of numbers from 1.
func list1(to *[]int) func(string) bool {
	return func(value string) bool {
		for one := range strings.SplitSeq(value, ",") {
			n, err := strconv.Atoi(one)
			if err != nil || n < 1 || slices.Contains(*to, n) {
				return false
			}
			*to = append(*to, n)
		}
		return true
	}
}

// ParseLatency reads a time, such as "1ms", or "p50=1ms,p99=8ms".
func ParseLatency(s string) (l Latency, err error) {
	if duration(&l.P50, 1, maxLatency)(s) {
		l.P99 = l.P50
		return l, nil
	}
	err = readWords("latency", strings.Split(s, ","), map[string]word{
		"p50": {"1µs to 1m", duration(&l.P50, 1, maxLatency)},
		"p99": {"1µs to 1m", duration(&l.P99, 1, maxLatency)},
	}, nil)
	if err == nil && (l.P50 == 0 || l.P99 < l.P50) {
		err = wrong("latency", s, "a time such as 1ms, or p50=1ms,p99=8ms")
	}
	return l, err
}
