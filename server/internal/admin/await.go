package admin

import (
	"context"
	"strconv"
	"strings"
	"time"
)

const (
	awaitFor   = time.Second
	awaitEvery = 2 * time.Millisecond
)

// await waits until a revision of the ledger is in force on this server, or returns the reason why
// it is not.
func (h *handler) await(ctx context.Context, revision int64) (inForce bool, why string) {
	timer := time.NewTimer(awaitFor)
	defer timer.Stop()
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for {
		inForce, why = h.reached(revision)
		if inForce {
			return true, ""
		}
		select {
		case <-tick.C:
		case <-timer.C:
			return false, why
		case <-ctx.Done():
			return false, why
		}
	}
}

// reached reports whether the ledger's layer is at a revision.
func (h *handler) reached(revision int64) (is bool, why string) {
	for _, layer := range h.Status().Layers {
		if layer.Name != h.Layer {
			continue
		}
		switch {
		case revisionOf(layer.Revision) >= revision:
			return true, ""
		case layer.Err != nil:
			return false, layer.Err.Error()
		case revisionOf(layer.Pending) >= revision:
			return false, "this server has read it and is compiling the rules; GET it again in a moment"
		}
		return false, "this server has not read it from the ledger yet; GET it again in a moment"
	}
	return false, "this server does not listen to the ledger"
}

// revisionOf returns the number in the revision of a ledger's layer, such as "12" or "12, 1 reverted"; 0: no revision.
func revisionOf(text string) int64 {
	text, _, _ = strings.Cut(text, ",")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
