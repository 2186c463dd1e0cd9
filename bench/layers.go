package main

import (
	"fmt"
	"io"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
)

const (
	coalescedName = "**weir**, coalesce"
	recalledName  = "**weir**, coalesce and recall"
	leasedName    = "**weir**, coalesce and lease"
	layeredName   = "**weir**, all exact layers"
	embeddedName  = "weir, embedded store"

	many = 512 // goroutines
)

// layerRows are those of the table of layers, and beside what they are held.
type layerRows struct{ hot, flood, leased, uniform []row }

func newLayerRows(s *server) layerRows {
	shortest := rawRow(shortestName, false, s.rueidisScript(shortest))
	embedded := allowRow(embeddedName, bucketOf)
	return layerRows{
		hot:     []row{layeredRow(s, coalescedName, 0, "breaker", "recall"), weirRedisRow(s), redisRateRow(s), shortest},
		flood:   []row{layeredRow(s, recalledName, 0, "breaker"), weirRedisRow(s), redisRateRow(s)},
		leased:  []row{layeredRow(s, leasedName, 0.1, "breaker", "recall"), embedded},
		uniform: []row{layeredRow(s, layeredName, 0), layeredRow(s, coalescedName, 0, "breaker", "recall"), weirRedisRow(s), redisRateRow(s), shortest},
	}
}

// layeredRow asks Redis through all layers but some. leased is the share of what remains that it takes ahead of need.
func layeredRow(s *server, name string, leased float64, without ...string) row {
	return row{name: name, refuses: true, open: func(q Quota) (Peer, error) {
		redis, err := s.weirStore()
		if err != nil {
			return nil, err
		}
		store, err := layered(redis, leased, without...)
		if err != nil {
			redis.Close()
			return nil, err
		}
		return limiterPeer(store, q, bucketOf)
	}}
}

func layered(redis weir.Store, leased float64, without ...string) (weir.Store, error) {
	stack, err := layers.New(redis, layers.Options{Local: memstore.New(), Without: without,
		Terms: func(*weir.Limit) layers.Terms { return layers.Terms{LeaseShare: leased} }})
	if err != nil {
		return nil, err
	}
	return stack.Store, nil
}

// A layersReport is what was measured of them, a board for each scene.
type layersReport struct {
	rows                        layerRows
	hot, flood, leased, uniform report
}

// overLayers measures layers. Decisions that take less time than reading the clock are not
// timed one by one.
func overLayers(out io.Writer, timed stage, s *server) (*layersReport, error) {
	l := &layersReport{rows: newLayerRows(s)}
	quick := timed
	quick.timed = false
	for _, scene := range []struct {
		report     *report
		stage      stage
		rows       []row
		keys       int
		refused    bool
		goroutines []int
	}{
		{&l.hot, quick, l.rows.hot, 1, false, []int{crowd}},
		{&l.flood, quick, l.rows.flood, 1, true, []int{crowd}},
		{&l.leased, quick, l.rows.leased, 1, false, []int{2, crowd}},
		{&l.uniform, timed, l.rows.uniform, tenThousand, false, []int{1, many}},
	} {
		st := scene.stage
		*scene.report = report{board: board{}, broken: map[string]string{}}
		st.board, st.broken = scene.report.board, scene.report.broken
		st.check(scene.rows)
		if err := playRedis(&st, s, scene.rows, scene.keys, scene.refused, scene.goroutines); err != nil {
			return nil, err
		}
	}
	l.print(out)
	return l, nil
}

func (l *layersReport) print(out io.Writer) {
	fmt.Fprintf(out, "## Layers\n\nAs above. Ratios are to %s and, the last, to \"%s\"; under leases, to %s. A p50 of 0: not timed one by one.\n\n", redisRateName, shortestName, embeddedName)
	l.hot.printScene(out, l.rows.hot, column{keys: 1}, []int{crowd}, redisRateName, shortestName)
	l.flood.printScene(out, l.rows.flood, column{keys: 1, refused: true}, []int{crowd}, redisRateName, shortestName)
	l.leased.printScene(out, l.rows.leased, column{keys: 1}, []int{2, crowd}, embeddedName, embeddedName)
	l.uniform.printScene(out, l.rows.uniform, column{keys: tenThousand}, []int{1, many}, redisRateName, shortestName)
	for _, part := range []struct {
		report *report
		rows   []row
	}{{&l.hot, l.rows.hot}, {&l.flood, l.rows.flood}, {&l.leased, l.rows.leased}, {&l.uniform, l.rows.uniform}} {
		part.report.printNotes(out, part.rows)
	}
}

func (l *layersReport) bars() []bar {
	hot, flood := column{1, false, crowd}, column{1, true, crowd}
	uniform, lone := column{tenThousand, false, many}, column{tenThousand, false, 1}
	return []bar{
		l.hot.times("one hot key, 128 goroutines, exact (coalesce): decisions/s against redis_rate", coalescedName, redisRateName, hot, 20),
		l.hot.cpuBar("one hot key, 128 goroutines, exact (coalesce): Redis CPU a decision against redis_rate", coalescedName, redisRateName, hot, 0.05),
		l.flood.times("one hot key, refused flood (recall): refusals/s against redis_rate", recalledName, redisRateName, flood, 100),
		l.flood.callsBar("one hot key, refused flood (recall): scripts in Redis a decision", recalledName, flood, 0.001),
		l.leased.times("one hot key, leased, 2 goroutines: decisions/s against the embedded store", leasedName, embeddedName, column{1, false, 2}, 0.5),
		l.leased.times("one hot key, leased, 128 goroutines: decisions/s against the embedded store", leasedName, embeddedName, column{1, false, crowd}, 0.5),
		l.uniform.times("10k keys, 512 goroutines: decisions/s against redis_rate", layeredName, redisRateName, uniform, 4),
		l.uniform.times("10k keys, 512 goroutines: decisions/s against the bare script", layeredName, shortestName, uniform, 1.3),
		l.uniform.p99Bar("10k keys, 512 goroutines: p99 against the bare script's", layeredName, shortestName, uniform, 1),
		l.uniform.addedBar("a lone caller through all layers: us added to a decision of the store alone", layeredName, weirRedisName, lone, 3),
	}
}

// times is how many times as many decisions a second a row makes.
func (r *report) times(what, name, reference string, c column, bound float64) bar {
	a, _ := r.board.get(name, c)
	b, _ := r.board.get(reference, c)
	ratio := r.faster(name, reference, c)
	return bar{what: what, ratio: ratio, bound: bound, atLeast: true, missing: ratio == 0, measured: fmt.Sprintf("%.0f/s against %.0f/s", a.rate(), b.rate())}
}

func (r *report) callsBar(what, name string, c column, bound float64) bar {
	f, ok := r.board.get(name, c)
	calls := median(f.calls)
	return bar{what: what, ratio: calls, bound: bound, missing: !ok, measured: fmt.Sprintf("%.2g", calls)}
}

func (r *report) p99Bar(what, name, reference string, c column, bound float64) bar {
	a, ok := r.board.get(name, c)
	b, there := r.board.get(reference, c)
	return bar{what: what, ratio: float64(a.p99) / max(1, float64(b.p99)), bound: bound, missing: !ok || !there,
		measured: fmt.Sprintf("%s us against %s us", micros(float64(a.p99)), micros(float64(b.p99)))}
}

// addedBar is how much longer a decision takes in one row than in another, in microseconds:
// the median of the differences within each round.
func (r *report) addedBar(what, name, reference string, c column, bound float64) bar {
	a, ok := r.board.get(name, c)
	b, there := r.board.get(reference, c)
	var added []float64
	for i := range min(len(a.perSecond), len(b.perSecond)) {
		added = append(added, 1e6/a.perSecond[i]-1e6/b.perSecond[i])
	}
	return bar{what: what, ratio: median(added), bound: bound, missing: !ok || !there, measured: fmt.Sprintf("%.1f us against %.1f us", a.nanoseconds()/1e3, b.nanoseconds()/1e3)}
}
