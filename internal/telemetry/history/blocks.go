package history

import (
	"context"
	"errors"
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
	err = h.makeBlocks(ctx, made)
	for _, one := range made {
		to.add(one.slice())
	}
	return last * blockMinutes, err
}

// blocksAtOnce are an hour: if there is no time for all, those that are complete are kept, and the next report goes on.
const blocksAtOnce = 60 / blockMinutes

// makeBlocks adds the minutes of all nodes to the blocks in which they are, the latest first. After an error the others
// have the minutes of this node.
func (h *History) makeBlocks(ctx context.Context, made map[int64]*sum) (err error) {
	began := h.now()
	numbers := slices.Sorted(maps.Keys(made))
	slices.Reverse(numbers)
	for some := range slices.Chunk(numbers, blocksAtOnce) {
		if err == nil && h.now().Sub(began) > readTimeout {
			err = errors.New("the history of other nodes is still being read")
		}
		err = h.makeSome(ctx, made, some, err)
	}
	return err
}

// makeSome makes some blocks; after an error, of the minutes of this node alone.
func (h *History) makeSome(ctx context.Context, made map[int64]*sum, some []int64, err error) error {
	from, to := slices.Min(some)*blockMinutes, (slices.Max(some)+1)*blockMinutes
	add := func(text []byte) {
		one, err := unpack(text)
		if err != nil {
			h.failures.Add(1)
			return
		}
		if number := minuteOf(one.At) / blockMinutes; slices.Contains(some, number) {
			made[number].add(one)
		}
	}
	for _, text := range h.packed(from, to) {
		add(text)
	}
	if err != nil {
		return err
	}
	if err = h.shared.each(ctx, h.id, "", from, to-1, add); err == nil {
		h.keepBlocks(made, some)
	}
	return err
}

// keepBlocks keeps some blocks, and drops those that are too old.
func (h *History) keepBlocks(made map[int64]*sum, some []int64) {
	oldest := minuteOf(h.now().Add(-kept)) / blockMinutes
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, block := range some {
		h.blocks[block] = pack(made[block].slice(), keysPerSlice)
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

// mostOwn is how many bytes of this node's minutes are in memory before the oldest are added up, and unthinned the
// minutes that are not: a report of these has no longer steps.
const (
	mostOwn   = 32 << 20
	unthinned = 3 * 60
)

// thin adds up the oldest minutes of this node, those of a block into its first one, while they take more than mostOwn.
// Its caller holds h.mu.
func (h *History) thin() {
	held := int64(0)
	for _, text := range h.minutes {
		held += int64(len(text))
	}
	now := minuteOf(h.now())
	for block := max(h.coarse, now-int64(kept/time.Minute)) / blockMinutes; held > mostOwn; block++ {
		first := block * blockMinutes
		if first+blockMinutes > now-unthinned {
			return
		}
		h.coarse = first + blockMinutes
		held -= h.addUp(first)
	}
}

// addUp adds up the minutes of a block, and returns how many bytes that saves.
func (h *History) addUp(first int64) (saved int64) {
	all := newSum(time.Unix(first*60, 0).UTC(), blockStep, 0)
	for minute := first; minute < first+blockMinutes; minute++ {
		if one, err := unpack(h.minutes[minute]); err == nil {
			all.add(one)
			saved += int64(len(h.minutes[minute]))
			delete(h.minutes, minute)
		}
	}
	if saved == 0 {
		return 0
	}
	h.minutes[first] = pack(all.slice(), keysPerSlice)
	return saved - int64(len(h.minutes[first]))
}
