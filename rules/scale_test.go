package rules_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// crowd returns rules like those of a large installation: of each ten one for a tenant's paths, one
// for a host, one for a client's network, one for a header, the rest for services' users
// and routes, of which the best match applies.
func crowd(n int) *rules.File {
	file := &rules.File{Name: "many"}
	for i := range n {
		s := rules.Spec{Name: fmt.Sprintf("rule-%d", i), Key: []string{"client.ip"}, Limit: []string{"100/1m"}}
		switch i % 10 {
		case 0:
			s.Match.Path = fmt.Sprintf("/tenants/%d/**", i)
		case 1:
			s.Match.Host = []string{fmt.Sprintf("t%d.example.com", i)}
		case 2:
			s.Match.Client = []string{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32).String()}
		case 3:
			s.Match.Header = map[string][]string{"X-Api-Key": {fmt.Sprintf("key-%d", i)}}
		case 4, 5, 6:
			s.Match.User, s.Group = []string{fmt.Sprintf("user-%d", i)}, "users"
		default:
			s.Match.Service, s.Match.Path, s.Group = []string{fmt.Sprintf("service-%d", i%1000)}, fmt.Sprintf("/v1/things/%d", i), "interfaces"
		}
		file.Rules = append(file.Rules, s)
	}
	return file
}

// yamlOf is a file as YAML.
func yamlOf(file *rules.File) []byte {
	var b bytes.Buffer
	b.WriteString("rules:\n")
	for i := range file.Rules {
		s := &file.Rules[i]
		fmt.Fprintf(&b, "  - name: %s\n    key: [%s]\n    limit: %s\n", s.Name, s.Key[0], s.Limit[0])
		if s.Group != "" {
			fmt.Fprintf(&b, "    group: %s\n", s.Group)
		}
		b.WriteString("    match:\n")
		for word, values := range map[string][]string{"host": s.Match.Host, "client": s.Match.Client, "user": s.Match.User, "service": s.Match.Service} {
			if len(values) > 0 {
				fmt.Fprintf(&b, "      %s: %s\n", word, values[0])
			}
		}
		if s.Match.Path != "" {
			fmt.Fprintf(&b, "      path: %s\n", s.Match.Path)
		}
		for name, values := range s.Match.Header {
			fmt.Fprintf(&b, "      header: {%s: %s}\n", name, values[0])
		}
	}
	return b.Bytes()
}

// TestAHundredThousandRules take as little time to match as few, and one rule more is refused.
func TestAHundredThousandRules(t *testing.T) {
	file := crowd(rules.MaxRules)
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < rules.MaxRules; at += 990 {
		found := set.Match(asking(at), nil)
		if len(found) != 5 {
			t.Errorf("request %d: %d rules, want 5", at, len(found))
		}
		for i, rule := range found {
			if want := fmt.Sprintf("rule-%d", at+i); rule.Name() != want {
				t.Errorf("request %d: rule %d is %s, want %s", at, i, rule.Name(), want)
			}
		}
	}
	file.Rules = append(file.Rules, rules.Spec{Name: "more", Limit: []string{"1/1s"}})
	if _, err := rules.Compile(file); err == nil || err.Error() != "many: rules: 100001 rules; at most 100000" {
		t.Errorf("with one more: %v", err)
	}
}

// BenchmarkLoad reports what it takes to load rules: time, and bytes that stay.
func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		file := crowd(n)
		b.Run(fmt.Sprint("compile-", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := rules.Compile(file); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(kept(func() any { set, _ := rules.Compile(file); return set })/float64(n), "kept-B/rule")
		})
		if n > 10_000 { // more than one file may have
			continue
		}
		yaml := yamlOf(file)
		b.Run(fmt.Sprint("parse-", n), func(b *testing.B) {
			b.SetBytes(int64(len(yaml)))
			for b.Loop() {
				if _, err := rules.Parse("many", yaml); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// kept is the number of bytes that a value keeps on the heap.
func kept(make func() any) float64 {
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	made := make()
	after := heap()
	runtime.KeepAlive(made)
	return after - before
}

// BenchmarkMatchMany is one request that meets a rule by its path, its host, its client, a
// header and its user.
func BenchmarkMatchMany(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			set, err := rules.Compile(crowd(n))
			if err != nil {
				b.Fatal(err)
			}
			requests := make([]*rules.Request, 64)
			for i := range requests {
				at := i * (n / 10) / len(requests) * 10
				requests[i] = asking(at)
			}
			var found []*rules.Rule
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				found = set.Match(requests[i%len(requests)], found[:0])
				if len(found) != 5 {
					b.Fatal(len(found))
				}
			}
		})
	}
}

// BenchmarkExcept adds one exception over many rules.
func BenchmarkExcept(b *testing.B) {
	file := crowd(100_000)
	set, err := rules.Compile(file)
	if err != nil {
		b.Fatal(err)
	}
	last := file.Rules[len(file.Rules)-1].Name
	file.Exceptions = []rules.Exception{{ID: "1", Kind: rules.Blocked, Values: []string{"192.0.2.1"}},
		{ID: "2", Kind: rules.Overridden, Rule: last, Values: []string{"192.0.2.2"}, Limit: []string{"1/1m", "2/1h"}}}
	for b.Loop() {
		if err := set.Except(file); err != nil || len(set.Unfit()) > 0 {
			b.Fatal(err, set.Unfit())
		}
	}
}

func asking(at int) *rules.Request {
	return &rules.Request{Path: fmt.Sprintf("/tenants/%d/x", at), Host: fmt.Sprintf("t%d.example.com", at+1),
		Client: netip.AddrFrom4([4]byte{10, byte((at + 2) >> 16), byte((at + 2) >> 8), byte(at + 2)}),
		User:   fmt.Sprintf("user-%d", at+4), Attributes: header(fmt.Sprintf("key-%d", at+3))}
}

// A header is the one that the rules ask for.
type header string

func (h header) Header(string) string   { return string(h) }
func (header) Query(string) string      { return "" }
func (header) Cookie(string) string     { return "" }
func (header) Descriptor(string) string { return "" }

func TestAHundredThousandRulesFitOneFile(t *testing.T) {
	var text bytes.Buffer
	text.WriteString("rules:\n")
	for i := range rules.MaxRules {
		fmt.Fprintf(&text, "- {name: r%d, match: {path: /v1/things/%d}, limit: 1/s}\n", i, i)
	}
	set, err := rules.Load("weir.yaml", text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(set.Rules()); n != rules.MaxRules {
		t.Errorf("%d rules", n)
	}
}

func TestErrorOfATooLargeFileHasNoSize(t *testing.T) {
	_, err := rules.Parse("weir.yaml", make([]byte, rules.MaxFile+1)) // as much as readers read
	if err == nil || !strings.Contains(err.Error(), "it has over 8388608 bytes") {
		t.Error(err)
	}
}
