package layers

import (
	"context"
	"errors"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/recall"
	"github.com/weirproject/weir/memstore"
)

// subscription is a recall.News that reports its begin and end.
type subscription struct{ begun, ended chan struct{} }

func (*subscription) Tell(context.Context, []byte) error { return nil }

func (s *subscription) Listen(ctx context.Context, _ func([]byte), _ func()) error {
	close(s.begun)
	<-ctx.Done()
	close(s.ended)
	return ctx.Err()
}

func TestFailedBuildStopsTheRefusalCacheAndKeepsTheStore(t *testing.T) {
	shared, news := memstore.New(), &subscription{make(chan struct{}), make(chan struct{})}
	defer shared.Close()
	s, failure := &Stack{Store: shared}, errors.New("refused")
	o := &Options{News: recall.News(news)}
	fail := func(*Options) error {
		<-news.begun
		return failure
	}
	steps := []step{{"recall", s.addRecall}, {"", fail}}
	if err := s.build(o, steps); !errors.Is(err, failure) {
		t.Fatalf("%v, want %v", err, failure)
	}
	select {
	case <-news.ended:
	default:
		t.Error("the refusal cache is still subscribed")
	}
	claims := []weir.Claim{{Key: "key", Limit: weir.MustLimit("limit", weir.PerSecond(1)), Cost: 1}}
	if _, err := shared.Decide(t.Context(), claims, 1, nil); err != nil {
		t.Errorf("the caller's store: %v", err)
	}
}
