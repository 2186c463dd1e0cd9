package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// sized is a rule with so many limits.
func sized(name string, n int, m rules.Match) rules.Spec {
	s := rules.Spec{Name: name, Match: m}
	for i := range n {
		s.Limit = append(s.Limit, fmt.Sprintf("sliding_log %d/%ds", 100+i, 1+i))
	}
	return s
}

func TestASetThatNeedsMoreClaimsThanADecisionHoldsIsRefused(t *testing.T) {
	full := make([]rules.Spec, 0, 40)
	for left, i := weir.MaxClaims, 0; left > 0; i++ {
		n := min(left, bounds.Limits)
		full = append(full, sized(fmt.Sprint("full-", i), n, rules.Match{}))
		left -= n
	}
	half := weir.MaxClaims/2 + 1
	rest := func(names string, m rules.Match) (list []rules.Spec) {
		for left, i := half, 0; left > 0; i++ {
			n := min(left, bounds.Limits)
			list = append(list, sized(fmt.Sprint(names, i), n, m))
			left -= n
		}
		return list
	}
	with := func(parts ...[]rules.Spec) (all []rules.Spec) {
		for _, part := range parts {
			all = append(all, part...)
		}
		return all
	}
	changed := func(list []rules.Spec, change func(*rules.Spec)) []rules.Spec {
		list = slices.Clone(list)
		for i := range list {
			change(&list[i])
		}
		return list
	}
	grouped := func(name string, limits int, network string) rules.Spec {
		s := sized(name, limits, rules.Match{Client: []string{network}})
		s.Group = "g"
		return s
	}
	beside := with(full[1:], []rules.Spec{sized("beside", bounds.Limits-1, rules.Match{})}) // leaves room for one
	for name, tt := range map[string]struct {
		list []rules.Spec
		want string // what the mistake says; "": there is none
	}{
		"a network beyond the better match in it": {append(beside,
			grouped("wide", 2, "10.0.0.0/8"), grouped("narrow", 1, "10.0.0.0/9")), "client.ip: 10.128.0.0"},
		"as many as there is room for": {full, ""},
		"one more":                     {append(full[:len(full):len(full)], sized("more", 1, rules.Match{})), "more 1"},
		"one more that is tried out": {append(full[:len(full):len(full)],
			changed([]rules.Spec{sized("more", 1, rules.Match{})}, func(s *rules.Spec) { s.Mode = rules.Shadow })...), ""},
		"a ban":             {changed(full, func(s *rules.Spec) { s.Ban = rules.Ban{After: "5 refusals within 1m", For: "10m"} }), "limits and bans"},
		"two paths":         {with(rest("a", rules.Match{Path: "/a"}), rest("b", rules.Match{Path: "/b"})), ""},
		"one path":          {with(rest("a", rules.Match{Path: "/a/**"}), rest("b", rules.Match{Path: "/*/b"})), `"/a/b"`},
		"paths that differ": {with(rest("a", rules.Match{Path: "/*/a"}), rest("b", rules.Match{Path: "/b/**"}), rest("c", rules.Match{Path: "/{x}/c"})), `"/b/a"`},
		"two hosts":         {with(rest("a", rules.Match{Host: []string{"a.example.com"}}), rest("b", rules.Match{Host: []string{"b.example.com"}})), ""},
		"one host":          {with(rest("a", rules.Match{Host: []string{"a.example.com"}}), rest("b", rules.Match{Host: []string{"*.example.com"}})), "a.example.com"},
		"two methods":       {with(rest("a", rules.Match{Method: []string{"POST"}}), rest("b", rules.Match{Method: []string{"GET", "PUT"}})), ""},
		"one method":        {with(rest("a", rules.Match{Method: []string{"GET"}}), rest("b", rules.Match{Method: []string{"HEAD"}})), "HEAD"},
		"what excludes itself": {with(rest("a", rules.Match{Method: []string{"POST"}, Service: []string{"a"}}),
			rest("b", rules.Match{Service: []string{"b"}}), rest("c", rules.Match{Method: []string{"GET"}, Service: []string{"c"}})), ""},
		"what does not": {with(rest("a", rules.Match{Method: []string{"POST"}, User: []string{"*"}}),
			rest("b", rules.Match{Header: map[string][]string{"X-Plan": {"free"}}})), "header X-Plan: free"},
		"two networks":   {with(rest("a", rules.Match{Client: []string{"10.0.0.0/8"}}), rest("b", rules.Match{Client: []string{"192.0.2.0/24"}})), ""},
		"one network":    {with(rest("a", rules.Match{Client: []string{"10.0.0.0/8"}}), rest("b", rules.Match{Client: []string{"10.1.0.0/16"}})), "client.ip: 10.1."},
		"one of a group": {changed(with(rest("a", rules.Match{}), rest("b", rules.Match{})), func(s *rules.Spec) { s.Group = "g" }), ""},
	} {
		_, err := rules.Compile(&rules.File{Name: "f", Rules: tt.list})
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), fmt.Sprint(weir.MaxClaims))):
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}

func TestAnExceptionThatNeedsMoreClaimsThanADecisionHoldsIsUnfit(t *testing.T) {
	file := &rules.File{Name: "f", Rules: []rules.Spec{sized("keyed", 1, rules.Match{})}}
	file.Rules[0].Key = []string{"client.ip"}
	for left := weir.MaxClaims - 4; left > 0; left -= 4 {
		file.Rules = append(file.Rules, sized(fmt.Sprint("r", left), 4, rules.Match{}))
	}
	for i, n := range []int{4, 2, 5} {
		limits := sized("", n, rules.Match{}).Limit
		file.Exceptions = append(file.Exceptions, rules.Exception{ID: fmt.Sprint("of ", n), Kind: rules.Overridden, Rule: "keyed", Values: []string{fmt.Sprint("192.0.2.", i)}, Limit: limits})
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	if unfit := set.Unfit(); len(unfit) != 1 || unfit[0].Field != "of 5" || !strings.Contains(unfit[0].Message, "a decision holds at most") {
		t.Errorf("unfit: %v", unfit)
	}
}

func TestTimeOfADecisionInRedis(t *testing.T) {
	in := func(path string, list ...rules.Spec) []rules.Spec {
		for i := range list {
			list[i].Name, list[i].Match.Path = fmt.Sprintf("r%x-%d", path, i), path
		}
		return list
	}
	logs := func(n int) rules.Spec { return sized("", n, rules.Match{}) }
	counter := rules.Spec{Limit: []string{"sliding_counter 9/100s slices 100", "concurrency 5 ttl 1m", "9/1m"}}
	shadow, first, second := logs(4), logs(4), logs(3)
	shadow.Mode, first.Group, second.Group = rules.Shadow, "g", "g"
	for name, test := range map[string]struct {
		list []rules.Spec
		want time.Duration
	}{
		"two paths, of which one is slower": {append(in("/a", logs(4), logs(4)), in("/b", logs(4))...), 96},
		"a rule for both":                   {append(in("/b", logs(2)), in("/b/**", logs(4))...), 72},
		"one of a group":                    {in("/a", first, second), 48},
		"a shadow rule, decided apart":      {in("/a", shadow), 0},
		"each algorithm":                    {in("/a", counter), 9 + 10 + 5},
	} {
		set, err := rules.Compile(&rules.File{Name: "f", Rules: test.list})
		if err != nil {
			t.Fatal(name, err)
		}
		if got := set.RedisTime(); got != test.want*time.Microsecond {
			t.Errorf("%s: %v, want %v", name, got, test.want*time.Microsecond)
		}
	}
}
