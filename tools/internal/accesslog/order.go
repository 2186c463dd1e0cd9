package accesslog

// An entry is something with a time. Entries of one time are in order of their number.
type entry struct {
	time, number int64
	slot         int
}

func (e entry) before(other entry) bool {
	return e.time < other.time || e.time == other.time && e.number < other.number
}

// A heap has its first entry at 0.
type heap []entry

func (h *heap) push(e entry) {
	*h = append(*h, e)
	s := *h
	i := len(s) - 1
	for i > 0 && e.before(s[(i-1)/2]) {
		s[i] = s[(i-1)/2]
		i = (i - 1) / 2
	}
	s[i] = e
}

func (h *heap) pop() (first entry) {
	s := *h
	first = s[0]
	e := s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	if len(s) == 0 {
		return first
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(s) {
			break
		}
		if child+1 < len(s) && s[child+1].before(s[child]) {
			child++
		}
		if !s[child].before(e) {
			break
		}
		s[i] = s[child]
		i = child
	}
	s[i] = e
	return first
}

const (
	block      = 256
	fieldsRoom = 3 // of a record, before it needs memory of its own
)

// An order holds records until no later one can belong before them. Most lines of a log are in order already:
// they wait in a cheap queue; the others wait in a heap.
type order struct {
	window int64 // microseconds
	most   int   // records that wait

	blocks []*[block]Record // of slots; they are not copied when there are more
	free   []int            // slots that are not used
	queue  []entry
	head   int // of the queue
	heap   heap
	newest int64
	added  int64
}

// slot is a record to be filled; add or discard takes it.
func (o *order) slot() int {
	if len(o.free) == 0 {
		records, room := new([block]Record), make([]Field, fieldsRoom*block)
		for i := range records {
			o.free = append(o.free, len(o.blocks)*block+i)
			records[i].Fields, room = room[:0:fieldsRoom], room[fieldsRoom:]
		}
		o.blocks = append(o.blocks, records)
	}
	last := len(o.free) - 1
	slot := o.free[last]
	o.free = o.free[:last]
	return slot
}

func (o *order) record(slot int) *Record { return &o.blocks[slot/block][slot%block] }

func (o *order) discard(slot int) { o.free = append(o.free, slot) }

func (o *order) add(slot int) {
	o.added++
	e := entry{o.record(slot).Time, o.added, slot}
	if o.added == 1 || e.time > o.newest {
		o.newest = e.time
	}
	if o.head < len(o.queue) && e.time < o.queue[len(o.queue)-1].time {
		o.heap.push(e)
		return
	}
	if o.head > 1024 && o.head > len(o.queue)/2 {
		o.queue = o.queue[:copy(o.queue, o.queue[o.head:])]
		o.head = 0
	}
	o.queue = append(o.queue, e)
}

func (o *order) waiting() int { return len(o.queue) - o.head + len(o.heap) }

// first is the earliest record that waits.
func (o *order) first() (e entry, inHeap bool) {
	if o.head == len(o.queue) || len(o.heap) > 0 && o.heap[0].before(o.queue[o.head]) {
		return o.heap[0], true
	}
	return o.queue[o.head], false
}

// ready reports whether the first record can go; ended is that no more will come.
func (o *order) ready(ended bool) bool {
	if n := o.waiting(); n == 0 || ended || n >= o.most {
		return n > 0
	}
	first, _ := o.first()
	return o.newest-first.time >= o.window
}

// take swaps the first record with the caller's, so that both keep their memory for Fields.
func (o *order) take(r *Record) {
	first, inHeap := o.first()
	if inHeap {
		o.heap.pop()
	} else {
		o.head++
	}
	slot := o.record(first.slot)
	*r, *slot = *slot, Record{Fields: r.Fields[:0]}
	o.free = append(o.free, first.slot)
}
