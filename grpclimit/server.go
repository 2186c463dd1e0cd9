package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/pause"
	"github.com/weirproject/weir/internal/requestid"
	"github.com/weirproject/weir/rules"
)

// A Server limits the calls of a gRPC server; [New] and [ByRules] make it. It is safe for concurrent use.
type Server struct {
	decide     func(context.Context, *Call, *admission)
	messages   *Server
	exempt     []string
	observe    func(context.Context, *Call, httplimit.Event)
	isForCalls bool // it has options that are not for messages
}

// New makes a Server that asks a limiter about each call.
func New(limiter *weir.Limiter, key Key, options *Options) (*Server, error) {
	if limiter == nil || key == nil {
		return nil, errors.New("grpclimit: the limiter or the key is nil; give both, such as PeerAddress for the key")
	}
	o := given(options)
	holds := slices.ContainsFunc(limiter.Limits(), (*weir.Limit).Leases)
	return o.server((&byLimiter{o, limiter, key, holds}).decide)
}

// ByCall makes a Server that asks about the claims that a function returns for each call, in one call of the store:
// limits from a database, or by method and by caller together. It is httplimit.ByRequest for gRPC.
func ByCall(store weir.Store, claims func(context.Context, *Call) ([]weir.Claim, error), options *Options) (
	*Server, error,
) {
	if store == nil || claims == nil {
		return nil, errors.New("grpclimit: the store or the function is nil; give both")
	}
	none, err := rules.Compile(&rules.File{})
	if err != nil {
		return nil, err
	}
	g, err := gate.New(store, none)
	if err != nil {
		return nil, err
	}
	o := given(options)
	return o.server((&byCall{o, g, claims}).decide)
}

// ByRules makes a Server that decides each call by the rules of a gate. When they are replaced, the next call is
// decided by the new ones. Rules see a call as the POST that it is on the wire:
//
//   - path and route are the full method, /package.Service/Method, and the service is package.Service;
//   - header.NAME is metadata, and the host is :authority;
//   - the client is the peer, or what trusted proxies say of it: see [RuleOptions];
//   - user and descriptor.NAME come from [RuleOptions], which can read the message of a unary
//     call.
//
// The deciding rule defines the fields; a refusal has its message, and its label as google.rpc.ErrorInfo. Status and
// body of a rule are for HTTP. A rule that settles by header.NAME takes the cost from the header or trailer that the
// handler sets; by bytes, from the encoded size of the messages that it sends.
func ByRules(g *gate.Gate, options *RuleOptions) (*Server, error) {
	if g == nil {
		return nil, errors.New("grpclimit: the gate is nil; make one with gate.New")
	}
	o := given(options)
	o.Clients = cmp.Or(o.Clients, new(clientaddr.Extractor))
	decide := (&byRules{o, g}).decide
	return newServer(Server{decide: decide, messages: o.Messages, exempt: o.Exempt, observe: o.Observe})
}

// An admission is the decision on a call or a message.
type admission struct {
	event    httplimit.Event
	checks   []check
	status   *status.Status // of a call that may not go on; else nil
	wait     time.Duration  // that the client is told, if limits refuse
	id       string         // of a call that rules do not let pass, as observers read it
	followUp *followUp      // may be nil
	place    *place         // of Adaptive; may be nil
}

// admit decides a call or a message. An observer that panics leaves no follow-up undone.
func (s *Server) admit(ctx context.Context, call *Call) *admission {
	a := new(admission)
	s.decide(ctx, call, a)
	observed := false
	defer func() {
		if !observed && a.followUp != nil {
			s.follow(ctx, a.followUp, &served{call: call})()
		}
	}()
	s.notify(ctx, call, a.event)
	observed = true
	return a
}

func (s *Server) notify(ctx context.Context, call *Call, e httplimit.Event) {
	if s.observe != nil {
		s.observe(ctx, call, e)
	}
}

// Unary is a grpc.UnaryServerInterceptor.
func (s *Server) Unary(
	ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (reply any, err error) {
	if s.isExempt(info.FullMethod) {
		return handler(ctx, message)
	}
	call := &Call{Method: info.FullMethod, Message: message}
	a := s.admit(ctx, call)
	if a.status != nil {
		grpc.SetTrailer(ctx, a.refusal(ctx))
		return nil, a.status.Err()
	}
	fields := describe(a.checks, true)
	served := &served{call: call}
	if a.followUp != nil {
		defer s.follow(ctx, a.followUp, served)()
		ctx = served.record(ctx, a.followUp)
	}
	if err := sleep(ctx, a.event.Answer.Delay); err != nil {
		return nil, err
	}
	served.ran = true
	reply, err = handler(ctx, message)
	served.returned = true
	if served.err = err; err == nil {
		served.sent(reply)
	}
	if fields != nil && (err != nil || grpc.SetHeader(ctx, fields) != nil) { // the handler may have sent the header
		grpc.SetTrailer(ctx, fields)
	}
	return reply, err
}

// Stream is a grpc.StreamServerInterceptor.
func (s *Server) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (
	err error,
) {
	if s.isExempt(info.FullMethod) {
		return handler(srv, stream)
	}
	ctx, call := stream.Context(), &Call{Method: info.FullMethod}
	a := s.admit(ctx, call)
	if a.status != nil {
		stream.SetTrailer(a.refusal(ctx))
		return a.status.Err()
	}
	served := &served{call: call}
	limited := &serverStream{ServerStream: stream, ctx: ctx, messages: s.messages, served: served,
		fields: describe(a.checks, true), place: a.place}
	if a.followUp != nil {
		defer s.follow(ctx, a.followUp, served)()
		limited.ctx = served.record(ctx, a.followUp)
	}
	defer limited.end()
	if err := sleep(ctx, a.event.Answer.Delay); err != nil {
		return err
	}
	served.ran = true
	served.err = limited.result(handler(srv, limited))
	served.returned = true
	return served.err
}

// isExempt reports whether a method is one of Exempt.
func (s *Server) isExempt(method string) bool {
	for _, exempt := range s.exempt {
		if method == exempt || strings.HasSuffix(exempt, "/") && strings.HasPrefix(method, exempt) {
			return true
		}
	}
	return false
}

// sleep waits for units that were borrowed.
func sleep(ctx context.Context, delay time.Duration) error {
	if !pause.For(delay, ctx.Done()) {
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// refusal is the metadata of a refusal.
func (a *admission) refusal(ctx context.Context) metadata.MD {
	fields := describe(a.checks, false)
	if fields == nil {
		fields = make(metadata.MD)
	}
	if a.id != "" {
		fields.Set(requestid.Field, a.id)
	}
	if a.event.Outcome != httplimit.Refused {
		return fields
	}
	if a.wait != weir.Never {
		fields.Set(fieldRetry, retryAfter(a.wait))
	}
	fields.Set(fieldPushback, pushback(ctx, a.wait))
	return fields
}
