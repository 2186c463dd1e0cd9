package history

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/internal/telemetry"
)

const (
	samplesEvery = time.Minute
	samplesLast  = 3 * time.Minute
	mostSample   = 16 << 10 // bytes of a sample
	sampleWait   = 500 * time.Millisecond
)

// samplesKey is a hash with the sample of each rule's keys on a node.
func samplesKey(id string) string { return keyPrefix + "{" + id + "}:keys" }

// shareSamples writes the samples of this node, once in samplesEvery.
func (h *History) shareSamples(ctx context.Context) error {
	now := h.now()
	if !h.Samples || now.Sub(h.sampled) < samplesEvery {
		return nil
	}
	fields := make(map[string]string)
	for _, rule := range h.Rules().Rules() {
		if s := h.Recorder.Sample(rule.Name()); s != nil {
			fields[rule.Name()] = string(s.Append(nil))
		}
	}
	if len(fields) == 0 {
		return nil
	}
	h.sampled = now
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	client, err := h.shared.connected(ctx)
	if err != nil {
		return err
	}
	key := samplesKey(h.id)
	set := client.B().Hset().Key(key).FieldValue()
	for name, text := range fields {
		set = set.FieldValue(name, text)
	}
	for _, result := range client.DoMulti(ctx, client.B().Del().Key(key).Build(), set.Build(),
		client.B().Expire().Key(key).Seconds(int64(samplesLast/time.Second)).Build()) {
		if err := result.Error(); err != nil {
			return err
		}
	}
	return nil
}

// samplesOf reads the samples of a rule on the other nodes. Nodes that do not answer are left out: the report says how
// many keys it has.
func (h *History) samplesOf(ctx context.Context, rule string) (list []*telemetry.KeySample) {
	if h.shared == nil || !h.Samples {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sampleWait)
	defer cancel()
	nodes, err := h.shared.nodes(ctx)
	if err != nil {
		return nil
	}
	client, err := h.shared.connected(ctx)
	if err != nil {
		return nil
	}
	var commands rueidis.Commands
	for id := range nodes {
		if id != h.id {
			commands = append(commands, client.B().Hget().Key(samplesKey(id)).Field(rule).Build())
		}
	}
	for _, result := range client.DoMulti(ctx, commands...) {
		text, err := result.AsBytes()
		if err != nil || len(text) > mostSample {
			continue // it has none
		}
		if s, err := telemetry.ParseSample(text); err == nil {
			list = append(list, s)
		} else {
			h.failures.Add(1)
		}
	}
	return list
}
