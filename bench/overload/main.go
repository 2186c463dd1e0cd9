// Command overload measures a service behind weir serve as it is built, at more requests than the service can work on,
// and prints Markdown: goodput, the 99th percentile of latency and refusals by class, without a limit, with adaptive
// limits, and with fixed ones, of which it searches the best. In the run the service loses half of its capacity, and
// gets it back.
//
// Client, gateways and service are processes of their own. The service sleeps in place of work, so that the figures
// depend little on the machine; see service.go.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/weirproject/weir/bench/process"
)

func main() {
	role := flag.String("role", "", "serve as this service (the program starts itself so)")
	name := flag.String("service", "pool", "pool, lock or refuses")
	over := flag.Float64("over", 3, "requests, as a multiple of the capacity")
	limits := flag.String("limits", "none fixed gradient aimd", "what is measured; fixed searches the best")
	gateways := flag.Int("gateways", 1, "gateways before the service")
	program := flag.String("program", "", "the weir to measure; without it, it is built")
	flag.Parse()
	err := error(nil)
	if *role != "" {
		err = serve(*role)
	} else {
		err = run(&bench{over: *over, gateways: *gateways, program: *program}, *name, strings.Fields(*limits))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "overload:", err)
		os.Exit(1)
	}
}

// serve is a service in this process.
func serve(name string) error {
	s := serviceOf(name)
	if s == nil {
		return fmt.Errorf("there is no service %q", name)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(listener, s)
	process.Serve(listener.Addr().String())
	return nil
}

// A bench measures limits before one service.
type bench struct {
	service  *service
	over     float64
	gateways int
	program  string
	good     time.Duration // a later answer is worth nothing
	best     float64       // goodput of the best fixed limit; 0: not known
}

// queueTime is how long requests wait at most before the service.
const queueTime = 50 * time.Millisecond

func run(b *bench, name string, limits []string) error {
	if b.service = serviceOf(name); b.service == nil {
		return fmt.Errorf("-service is %q; allowed: pool, lock, refuses", name)
	}
	dir, err := os.MkdirTemp("", "weir-overload")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if b.program, err = process.Build(b.program, dir); err != nil {
		return err
	}
	unloaded, err := b.measure("", 0.1, []phase{{5 * time.Second, false, true}})
	if err != nil {
		return err
	}
	p99 := unloaded.figures([]phase{{5 * time.Second, false, true}}, clientsWait).p99
	b.good = 2*p99 + queueTime
	fmt.Printf("%s, %.0f requests a second, at %.1f times as many, %d gateways; p99 without load %d ms, good within "+
		"%d ms\n\n", name, b.service.capacity(), b.over, b.gateways, p99.Milliseconds(), b.good.Milliseconds())
	fmt.Println("| limit | good answers a second | of the best fixed | p99, ms | lost: critical, whole capacity | " +
		"critical | default | batch |")
	fmt.Println("| --- | --: | --: | --: | --: | --: | --: | --: |")
	for _, limit := range limits {
		if err := b.row(limit); err != nil {
			return err
		}
	}
	return nil
}

// row measures a limit, or searches the best fixed one.
func (b *bench) row(limit string) error {
	if limit != "fixed" {
		f, err := b.figures(b.concurrency(limit, 0))
		if err == nil {
			b.print(limit, f)
		}
		return err
	}
	var found []figures
	for _, n := range b.fixed() {
		f, err := b.figures(b.concurrency(limit, n))
		if err != nil {
			return err
		}
		found = append(found, f)
		b.best = max(b.best, f.goodput)
	}
	for i, n := range b.fixed() {
		b.print(fmt.Sprintf("fixed %d", n), found[i])
	}
	return nil
}

// fixed are the limits that are searched, for each gateway.
func (b *bench) fixed() (list []int) {
	for _, times := range []float64{1, 1.25, 1.5, 2} {
		list = append(list, int(times*b.service.concurrency()/float64(b.gateways)))
	}
	return list
}

func (b *bench) figures(concurrency string) (figures, error) {
	l, err := b.measure(concurrency, b.over, phases())
	if err != nil {
		return figures{}, err
	}
	return l.figures(phases(), b.good), nil
}

func (b *bench) print(name string, f figures) {
	part, late := "", "none answered"
	if b.best > 0 {
		part = fmt.Sprintf("%.1f %%", 100*f.goodput/b.best)
	}
	if f.p99 <= clientsWait {
		late = fmt.Sprint(f.p99.Milliseconds())
	}
	fmt.Printf("| %s | %.0f | %s | %s | %.3f %% | %.2f %% | %.0f %% | %.0f %% |\n", name, f.goodput, part, late,
		f.critical, f.lost[0], f.lost[1], f.lost[2])
}

// concurrency is the setting of a service for a limit; n is a fixed one.
func (b *bench) concurrency(limit string, n int) string {
	least, most := max(1, 5/b.gateways), 1000
	switch limit {
	case "none":
		return ""
	case "fixed":
		limit, least, most = "gradient", n, n
	}
	return fmt.Sprintf(", concurrency: {adaptive: %s, min: %d, max: %d, queue: {for: %v, most: 100}, reserve: {by: "+
		"header.X-Criticality, classes: {critical: 0%%, default: 20%%, batch: 50%%}}}", limit, least, most, queueTime)
}

// rulesOf are the rules of a gateway before a service.
func rulesOf(address, concurrency string) string {
	return fmt.Sprintf("rules: []\nservices: [{name: search, addresses: http://%s%s}]\n"+
		"routes: [{name: all, service: search}]\nserver: {trusted_proxies: [127.0.0.1]}\n", address, concurrency)
}

// measure starts the processes, and sends the load of the phases.
func (b *bench) measure(concurrency string, over float64, phases []phase) (l *load, err error) {
	up, err := process.Self("-role", b.service.name)
	if err != nil {
		return nil, err
	}
	defer up.Stop()
	var gateways []string
	for range b.gateways {
		g, err := process.Weir(b.program, "gateway", rulesOf(up.Address, concurrency), "--http", "off", "--gateway",
			"127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer g.Stop()
		gateways = append(gateways, "http://"+g.Address+"/")
	}
	change := func(halved bool) error {
		path := "/restore"
		if halved {
			path = "/halve"
		}
		response, err := http.Get("http://" + up.Address + path)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	l = newLoad(gateways, over*b.service.capacity(), change)
	return l, l.run(phases)
}
