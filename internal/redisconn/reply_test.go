package redisconn

import (
	"errors"
	"maps"
	"reflect"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// ask opens a client of a new server.
func ask(t *testing.T) func(name string, keys []string, args ...string) Reply {
	t.Helper()
	c, err := OpenClient(t.Context(), redistest.Start(t).URL(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return func(name string, keys []string, args ...string) Reply {
		return c.Do(t.Context(), Command{Name: name, Keys: keys, Args: args})
	}
}

func TestRepliesHaveTheTypesOfTheirCommands(t *testing.T) {
	do, key := ask(t), []string{"k"}
	if n, err := do("HSET", key, "a", "1", "b", "\xff").Int(); n != 2 || err != nil {
		t.Error(n, err)
	}
	want := map[string]string{"a": "1", "b": "\xff"}
	if got, err := do("HGETALL", key).Map(); !maps.Equal(got, want) || err != nil {
		t.Error(got, err)
	}
	if got, err := do("EVAL", nil, "return {'a', '1', 'b', '\xff'}", "0").Map(); !maps.Equal(got, want) || err != nil {
		t.Error(got, err)
	}
	if text, err := do("HGET", key, "a").Text(); text != "1" || err != nil {
		t.Error(text, err)
	}
	if p, err := do("SCAN", nil, "0").Page(); !reflect.DeepEqual(p, Page{Keys: key}) || err != nil {
		t.Error(p, err)
	}
	list, err := do("TIME", nil).List()
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	if seconds, err := list[0].Int(); seconds < 1e9 || err != nil {
		t.Error(seconds, err)
	}
}

func TestRepliesThatAreErrors(t *testing.T) {
	do := ask(t)
	if err := do("GET", []string{"none"}).Err(); err != ErrNil {
		t.Error(err)
	}
	var answer *ServerError
	if _, err := do("INCR", nil).Int(); !errors.As(err, &answer) {
		t.Error(err)
	}
	list, err := do("EVAL", nil, "return {redis.error_reply('WRONG a'), false, 7}", "0").List()
	if err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
	if err := list[0].Err(); !errors.As(err, &answer) || answer.Text != "WRONG a" {
		t.Error(err)
	}
	if err := list[1].Err(); err != ErrNil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"text of a number":  second(list[2].Text()),
		"list of a number":  second(list[2].List()),
		"map of a number":   second(list[2].Map()),
		"page of a number":  second(list[2].Page()),
		"map of three":      second(do("EVAL", nil, "return {'a', 'b', 'c'}", "0").Map()),
		"map with numbers":  second(do("EVAL", nil, "return {'a', 1}", "0").Map()),
		"texts with a hole": second(do("EVAL", nil, "return {'a', false, 'b'}", "0").Texts()),
		"number of a text":  second(do("ECHO", nil, "seven").Int()),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }
