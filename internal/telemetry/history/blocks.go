package history

import (
	"context"
	"maps"
	"slices"
	"time"
)

const (
	blockMinutes = 5
	blockStep    = blockMinutes * time.Minute
	settled      = 4 // minutes after which a minute of no node changes, but after an outage of Redis
)

// blocks are packed sums of all nodes over five minutes each, by their number since 1970, so that a report of 24 hours
// decodes 288 records and not 1440 of each node. They are guarded by History.mu.
type blocks map[int64][]byte

// addBlocks adds the blocks of an interval that no longer change, and returns where they end. Blocks that are not there
// yet are made.
func (h *History) addBlocks(ctx context.Context, to *sum) (end int64, err error) {
	first := minuteOf(to.from) / blockMinutes
	last := min(minuteOf(to.end()), minuteOf(h.now())-settled) / blockMinutes
	if last <= first {
		return minuteOf(to.from), nil
	}
	made := make(map[int64]*sum)
	h.mu.Lock()
	var list [][]byte
	for block := first; block < last; block++ {
		if packed := h.blocks[block]; packed != nil {
			list = append(list, packed)
			continue
		}
		made[block] = newSum(time.Unix(block*blockMinutes*60, 0).UTC(), blockStep, 0)
	}
	h.mu.Unlock()
	for _, packed := range list {
		if one, err := unpack(packed); err == nil {
			to.add(one)
		}
	}
	if err = h.makeBlocks(ctx, made); err == nil {
		h.keepBlocks(made)
	}
	for _, one := range made {
		to.add(one.slice())
	}
	return last * blockMinutes, err
}

// makeBlocks adds the minutes of all nodes to the blocks in which they are.
func (h *History) makeBlocks(ctx context.Context, made map[int64]*sum) error {
	if len(made) == 0 {
		return nil
	}
	numbers := slices.Collect(maps.Keys(made))
	from, to := slices.Min(numbers)*blockMinutes, (slices.Max(numbers)+1)*blockMinutes
	add := func(text []byte) {
		one, err := unpack(text)
		if err != nil {
			h.failures.Add(1)
			return
		}
		if block := made[minuteOf(one.At)/blockMinutes]; block != nil {
			block.add(one)
		}
	}
	for _, text := range h.packed(from, to) {
		add(text)
	}
	return h.shared.each(ctx, h.id, "", from, to-1, add)
}

// keepBlocks keeps blocks, and drops those that are too old.
func (h *History) keepBlocks(made map[int64]*sum) {
	oldest := minuteOf(h.now().Add(-kept)) / blockMinutes
	h.mu.Lock()
	defer h.mu.Unlock()
	for block, one := range made {
		h.blocks[block] = pack(one.slice())
	}
	for block := range h.blocks {
		if block < oldest {
			delete(h.blocks, block)
		}
	}
}

// forgetBlocks drops the blocks from a minute on: a node has shared it late.
func (h *History) forgetBlocks(minute int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for block := range h.blocks {
		if block >= minute/blockMinutes {
			delete(h.blocks, block)
		}
	}
}
