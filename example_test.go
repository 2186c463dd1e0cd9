package weir_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func Example() {
	logins, err := weir.New(memstore.New(), "login", weir.SlidingLog{Limit: 2, Window: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		answer, err := logins.Allow(context.Background(), "ip:203.0.113.7")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.Allowed, answer.Remaining, answer.RetryAfter.Round(time.Second))
	}
	// Output:
	// true 1 0s
	// true 0 1m0s
	// false 0 1m0s
}

// Several limits of one key are one decision: if one refuses, none is charged.
func ExampleNew() {
	sms, err := weir.New(memstore.New(), "sms",
		weir.SlidingLog{Limit: 1, Window: time.Minute},
		weir.SlidingLog{Limit: 5, Window: time.Hour},
		weir.Calendar{Limit: 10, Unit: weir.Day, Zone: "Asia/Shanghai"},
	)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		answer, _ := sms.Allow(context.Background(), "+86 10 5555 0100")
		fmt.Println(answer.Allowed, answer.Limit)
	}
	// Output:
	// true sliding_log 1/1m
	// false sliding_log 1/1m
}

func ExampleParseLimit() {
	for _, text := range []string{"100/min", "10r/s burst 20", "calendar 3/month in Europe/Berlin", "5"} {
		spec, err := weir.ParseLimit(text)
		if err != nil {
			fmt.Println("a mistake")
			continue
		}
		fmt.Printf("%T %v\n", spec, spec)
	}
	// Output:
	// weir.TokenBucket 100/1m
	// weir.TokenBucket 10/1s burst 20
	// weir.Calendar calendar 3/month in Europe/Berlin
	// a mistake
}

// Wait knows ahead that the context leaves too little time, and takes nothing.
func ExampleLimiter_Wait() {
	mails, err := weir.New(memstore.New(), "mails", weir.PerHour(1))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(mails.Wait(ctx, "user:42"))
	fmt.Println(errors.Is(mails.Wait(ctx, "user:42"), weir.ErrTooLong))
	// Output:
	// <nil>
	// true
}

// A cost that is known only later: charge an estimate, then settle.
func ExampleLimiter_Reserve() {
	ctx := context.Background()
	tokens, err := weir.New(memstore.New(), "tokens", weir.Calendar{Limit: 10_000, Unit: weir.Year})
	if err != nil {
		log.Fatal(err)
	}
	reservation, err := tokens.Reserve(ctx, "team:7", 4000)
	if err != nil {
		log.Fatal(err)
	}
	used := int64(1234) // the tokens that the model reports
	if err := reservation.Settle(ctx, used); err != nil {
		log.Fatal(err)
	}
	answer, _ := tokens.Peek(ctx, "team:7")
	fmt.Println(answer.Remaining)
	// Output: 8766
}

func ExampleLimiter_Acquire() {
	ctx := context.Background()
	reports, err := weir.New(memstore.New(), "reports", weir.Concurrency{Limit: 1, TTL: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	lease, err := reports.Acquire(ctx, "user:42")
	if err != nil {
		log.Fatal(err)
	}
	_, err = reports.Acquire(ctx, "user:42")
	fmt.Println(errors.Is(err, weir.ErrRefused))
	fmt.Println(lease.Release(ctx))
	fmt.Println(errors.Is(lease.Renew(ctx), weir.ErrLeaseGone))
	// Output:
	// true
	// <nil>
	// true
}
