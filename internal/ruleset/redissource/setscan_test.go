//go:build unix

package redissource

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/redistest"
)

// A meddler does something with a server before the second page of a set is read.
type meddler struct {
	rueidis.Client
	calls  int
	meddle func()
}

func (m *meddler) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	if m.calls++; m.calls == 3 {
		m.meddle()
	}
	return m.Client.DoMulti(ctx, commands...)
}

func fillSet(s *redistest.Server, name string, from, n int) {
	args := []string{"SADD", name}
	for i := range n {
		args = append(args, fmt.Sprint("m", from+i))
	}
	s.Do(args...)
}

// TestSetThatChangesIsReadAgain: a reading never mixes old and new members.
func TestSetThatChangesIsReadAgain(t *testing.T) {
	server := redistest.Start(t)
	connected, err := redisconn.OpenClient(t.Context(), server.URL(), redisconn.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	for _, test := range []struct {
		what   string
		meddle func()
		want   int
	}{
		{"deleted", func() { server.Do("DEL", "s") }, 0},
		{"renamed over it", func() { fillSet(server, "t", 10_000, 3500); server.Do("RENAME", "t", "s") }, 3500},
		{"grown", func() { fillSet(server, "s", 5000, 1) }, 5001},
	} {
		server.Do("DEL", "s")
		fillSet(server, "s", 0, 5000)
		found, err := readSets(t.Context(), &meddler{Client: connected, meddle: test.meddle}, []string{"s"})
		if err != nil {
			t.Fatal(err)
		}
		if got := found["s"]; len(got.members) != test.want || got.foreign != "" {
			t.Errorf("%s: %d members are read, not %d %s", test.what, len(got.members), test.want, got.foreign)
		}
	}
}

// TestAnAnnouncementOutlivesAReadingThatFails.
func TestAnAnnouncementOutlivesAReadingThatFails(t *testing.T) {
	s := newSetState("c", false)
	s.keep([]string{"a"})
	have := func(members ...string) {
		s.put(map[string]setReading{"a": {members: members}})
	}
	have("x")
	if !s.all("a") || !s.all(reloadAll) || s.all("b") {
		t.Error("other messages are about the sets")
	}
	s.begin() // and its connection is lost
	s.begin()
	empty := map[string]setReading{"a": {}}
	s.all("a") // of something that came after it was read
	s.take(empty)
	if set := s.contents(); set.Warning != nil || len(set.File.Sets["a"]) != 0 {
		t.Errorf("%v %v", set.Warning, set.File.Sets)
	}
	have("y")
	s.begin()
	s.take(empty)
	if set := s.contents(); set.Warning != nil {
		t.Error(set.Warning)
	}
	have("z")
	s.begin() // nobody has said anything since
	s.take(empty)
	if set := s.contents(); set.Warning == nil || len(set.File.Sets["a"]) != 1 {
		t.Errorf("%v %v", set.Warning, set.File.Sets)
	}
}

// TestAllSetsTogetherAreBounded: the set that grows first takes the room.
func TestAllSetsTogetherAreBounded(t *testing.T) {
	s := newSetState("c", false)
	s.keep([]string{"a", "b", "c"})
	most := bounds.AllMembers
	for i, test := range []struct{ a, b, c, wantA, wantB, wantC int }{
		{most / 2, most / 2, 0, most / 2, most / 2, 0},
		{most/2 + 1, most / 2, 0, most / 2, most / 2, 0},
		{most/2 - 1, most/2 + 1, 1, most/2 - 1, most/2 + 1, 0},
		{most/2 - 2, most/2 + 1, 1, most/2 - 2, most/2 + 1, 1},
		{1, most - 2, 1, 1, most - 2, 1},
	} {
		read := make(map[string]setReading)
		for name, n := range map[string]int{"a": test.a, "b": test.b, "c": test.c} {
			read[name] = setReading{members: make([]string, n)}
		}
		s.put(read)
		sets := s.contents().File.Sets
		if got := [3]int{len(sets["a"]), len(sets["b"]), len(sets["c"])}; got != [3]int{test.wantA, test.wantB, test.wantC} {
			t.Errorf("%d: %v members are in force; wanted %+v", i, got, test)
		}
	}
}
