package grpclimit

import (
	"context"
	"net/textproto"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/rules"
)

// A followUp is the work that a granted call leaves: renew its leases while it is served, then release them and settle
// the cost.
type followUp struct {
	records bool // end needs the metadata of the response
	keep    func(ctx context.Context, failed func(error)) (stop func())
	end     func(ctx context.Context, s *served, notify func(httplimit.Outcome, error))
}

// follow begins a follow-up; end ends it.
func (s *Server) follow(ctx context.Context, f *followUp, of *served) (end func()) {
	notify := func(outcome httplimit.Outcome, err error) {
		s.notify(ctx, of.call, httplimit.Event{Outcome: outcome, Err: err})
	}
	stop := f.keep(ctx, func(err error) { notify(httplimit.Unrenewed, err) })
	return func() {
		stop()
		f.end(context.WithoutCancel(ctx), of, notify)
	}
}

// A served has the facts about a response.
type served struct {
	call *Call
	ran  bool  // the handler was called
	last any   // the last message sent
	err  error // of the handler

	returned bool // the handler returned without a panic

	records bool
	mu      sync.Mutex // the handler may set metadata from several goroutines
	fields  metadata.MD
	bytes   int64
	unsized bool // a message that is not of protobuf was sent
}

// record records the metadata of the response where the follow-up needs it: it returns the context for the handler.
func (s *served) record(ctx context.Context, f *followUp) context.Context {
	s.records = f.records
	below := grpc.ServerTransportStreamFromContext(ctx)
	if !f.records || below == nil {
		return ctx
	}
	return grpc.NewContextWithServerTransportStream(ctx, &recorder{below, s})
}

// A recorder records what grpc.SetHeader, SendHeader and SetTrailer set.
type recorder struct {
	grpc.ServerTransportStream
	served *served
}

// SetHeader implements grpc.ServerTransportStream.
func (r *recorder) SetHeader(header metadata.MD) error {
	r.served.recordFields(header)
	return r.ServerTransportStream.SetHeader(header)
}

// SendHeader implements grpc.ServerTransportStream.
func (r *recorder) SendHeader(header metadata.MD) error {
	r.served.recordFields(header)
	return r.ServerTransportStream.SendHeader(header)
}

// SetTrailer implements grpc.ServerTransportStream.
func (r *recorder) SetTrailer(trailer metadata.MD) error {
	r.served.recordFields(trailer)
	return r.ServerTransportStream.SetTrailer(trailer)
}

// recordFields records metadata of the response, if a follow-up needs it.
func (s *served) recordFields(fields metadata.MD) {
	if !s.records {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fields == nil {
		s.fields = make(metadata.MD)
	}
	for name, values := range fields {
		s.fields.Append(name, values...)
	}
}

// sent records a message.
func (s *served) sent(message any) {
	s.last = message
	if !s.records {
		return
	}
	m, ok := message.(proto.Message)
	if !ok {
		s.unsized = true
		return
	}
	s.bytes += int64(proto.Size(m))
}

// followUp is the follow-up of a granted verdict, or nil.
func (d *byRules) followUp(call *Call, v *gate.Verdict) *followUp {
	settles := false
	for i := range v.Len() {
		c := v.At(i)
		settles = settles || c.Decided && c.Rule != nil && c.Rule.Settles()
	}
	settles = settles && !call.received
	if !settles && !v.Holds() {
		return nil
	}
	f := newFollowUp(d.gate, v.Receipt(), settles, func(c *gate.Charged, s *served) (units int64, ok bool, err error) {
		if c.Rule == nil || !c.Rule.Settles() {
			return 0, false, nil
		}
		units, err = s.cost(c.Rule)
		return units, true, err
	})
	f.records = settles
	return f
}

// An actualCost is the cost of a charge after the call; ok is false if it stays as it is.
type actualCost func(c *gate.Charged, s *served) (units int64, ok bool, err error)

// newFollowUp is the follow-up of the charges of a gate.
func newFollowUp(g *gate.Gate, receipt gate.Receipt, settles bool, actual actualCost) *followUp {
	settled := g.Open(receipt)
	return &followUp{
		keep: func(ctx context.Context, failed func(error)) func() {
			return g.KeepAlive(ctx, receipt, failed)
		},
		end: func(ctx context.Context, s *served, notify func(httplimit.Outcome, error)) {
			defer settled()
			if settles && s.ran {
				err := g.SettleEach(ctx, receipt, func(c *gate.Charged) (int64, bool, error) { return actual(c, s) })
				if err != nil {
					notify(httplimit.Unsettled, err)
				}
			}
			if err := g.Release(ctx, receipt); err != nil {
				notify(httplimit.Unreleased, err)
			}
		},
	}
}

// cost is the actual cost by a rule's settle. The last line of a header field or trailer counts.
func (s *served) cost(rule *rules.Rule) (units int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &rules.Answer{Bytes: s.bytes, Header: func(name string) string {
		values := s.fields.Get(name)
		if len(values) == 0 {
			return ""
		}
		return textproto.TrimString(values[len(values)-1])
	}}
	if s.unsized { // its messages are not of protobuf
		answer.Bytes = -1
	}
	return rule.Actual(answer)
}

const allowedUnits = "a whole number from 0 to 4503599627370496 (2^52)"

func checked(field string, units int64) (int64, error) {
	if units < 0 || units > weir.MaxUnits {
		return 0, &weir.InputError{Field: field, Given: units, Allowed: allowedUnits}
	}
	return units, nil
}
