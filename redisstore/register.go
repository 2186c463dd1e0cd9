package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
)

// maxRegister is how many entries a register keeps. Beyond it the entries that end first are dropped.
const maxRegister = 1000

//go:embed register.lua
var registerText string

var registerScript = redisconn.ScriptOf(registerText)

// Register keeps a note under a name of a register for a duration, by Redis' clock, so that other nodes can list it.
// It is for lists that people read, and no decision depends on it: a register is lost where Redis loses it, and a
// full one drops the entries that end first. A duration of 0 removes the entry.
func (s *Store) Register(ctx context.Context, register, name, note string, last time.Duration) error {
	_, err := s.register(ctx, register, name, note, strconv.FormatInt(last.Milliseconds(), 10))
	return err
}

// Registered are the notes of a register by their names.
func (s *Store) Registered(ctx context.Context, register string) (map[string]string, error) {
	reply, err := s.register(ctx, register, "", "", "0")
	if err != nil {
		return nil, err
	}
	if len(reply)%2 != 0 {
		return nil, fmt.Errorf("redisstore: %w: the script's reply is not understood", weir.ErrUnavailable)
	}
	notes := make(map[string]string, len(reply)/2)
	for i := 0; i < len(reply); i += 2 {
		notes[reply[i].Text] = reply[i+1].Text
	}
	return notes, nil
}

func (s *Store) register(ctx context.Context, register, name, note, last string) ([]redisconn.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.timeout)
	defer cancel()
	key := s.config.prefix + "register:{" + register + "}"
	return s.conn.Run(ctx, registerScript, []string{key}, []string{name, note, last, strconv.Itoa(maxRegister)}, nil)
}
