package tally

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestBucketsCoverAllLatenciesOnce(t *testing.T) {
	for bucket := range numBuckets {
		low := lowerBound(bucket)
		if got := bucketOf(low); got != bucket {
			t.Errorf("the lower bound %v of bucket %d is in bucket %d", low, bucket, got)
		}
		if bucket > 0 && bucketOf(low-1) != bucket-1 {
			t.Errorf("%v is in bucket %d, want %d", low-1, bucketOf(low-1), bucket-1)
		}
		if next := bucket + 1; bucket > 0 && next < numBuckets && lowerBound(next)-low > low/8 {
			t.Errorf("bucket %d is wider than an eighth of %v", bucket, low)
		}
	}
	for _, d := range []time.Duration{-time.Second, 0, 1<<63 - 1} {
		if b := bucketOf(d); b < 0 || b >= numBuckets {
			t.Errorf("%d is in bucket %d of %d", d, b, numBuckets)
		}
	}
}

func TestQuantileIsWithinASixteenth(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var l Latency
	all := make([]time.Duration, 20_000)
	for i := range all {
		all[i] = time.Duration(float64(int64(256)<<random.IntN(24)) * (1 + random.Float64()))
		l.Observe(all[i], uintptr(i))
	}
	slices.Sort(all)
	counts, _ := l.Read()
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999} {
		want := all[int(q*float64(len(all)))]
		got := counts.Quantile(q)
		if diff := max(got-want, want-got); float64(diff) > float64(want)/16+1 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := Buckets(nil).Quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
}

func TestLatencyLosesNothing(t *testing.T) {
	var l Latency
	var wait sync.WaitGroup
	for lane := range uintptr(8) {
		wait.Go(func() {
			for i := range 1000 {
				l.Observe(time.Duration(i)*time.Microsecond, lane)
			}
		})
	}
	wait.Wait()
	counts, sum := l.Read()
	if counts.Total() != 8000 || sum != 8*499500*time.Microsecond {
		t.Errorf("%d latencies with the sum %v", counts.Total(), sum)
	}
}

func TestBucketsAddUp(t *testing.T) {
	a := Buckets{{1, 2}, {5, 1}}
	b := Buckets{{0, 1}, {5, 4}, {9, 1}}
	want := Buckets{{0, 1}, {1, 2}, {5, 5}, {9, 1}}
	if got := a.Add(b); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := b.Add(a); !slices.Equal(got, want) {
		t.Errorf("the other way round: %v", got)
	}
	if got := Buckets(nil).Add(a); !slices.Equal(got, a) {
		t.Errorf("with nothing: %v", got)
	}
}

func TestCumulativeCountsBelowEachPower(t *testing.T) {
	list := Buckets{{0, 2}, {uint8(bucketOf(time.Microsecond)), 3}, {numBuckets - 1, 1}}.Cumulative()
	for bound, want := range map[float64]uint64{256e-9: 2, 512e-9: 2, 1.024e-6: 5, 8.589934592: 5, 17.179869184: 5} {
		if got, ok := list[bound]; got != want || !ok {
			t.Errorf("%d below %v, want %d of %v", got, bound, want, list)
		}
	}
	if len(Buckets(nil).Cumulative()) != len(list) {
		t.Error("the number of series depends on the latencies")
	}
}
