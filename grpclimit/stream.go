package grpclimit

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A serverStream limits the messages that it receives, and adds the fields of the limits to the first response.
type serverStream struct {
	grpc.ServerStream
	ctx      context.Context
	messages *Server // nil: no limits of messages
	served   *served
	place    *place // may be nil

	describing sync.Once
	fields     metadata.MD

	mu      sync.Mutex     // a handler may return while one of its goroutines receives
	last    func()         // ends the follow-up of the last message; may be nil
	refusal *status.Status // of a message
	ended   bool
}

// Context implements grpc.ServerStream.
func (s *serverStream) Context() context.Context { return s.ctx }

// SendHeader implements grpc.ServerStream.
func (s *serverStream) SendHeader(header metadata.MD) error {
	s.place.head()
	s.describe(s.ServerStream.SetHeader)
	s.served.recordFields(header)
	return s.ServerStream.SendHeader(header)
}

// SetHeader implements grpc.ServerStream.
func (s *serverStream) SetHeader(header metadata.MD) error {
	s.served.recordFields(header)
	return s.ServerStream.SetHeader(header)
}

// SetTrailer implements grpc.ServerStream.
func (s *serverStream) SetTrailer(trailer metadata.MD) {
	s.served.recordFields(trailer)
	s.ServerStream.SetTrailer(trailer)
}

// SendMsg implements grpc.ServerStream.
func (s *serverStream) SendMsg(message any) error {
	s.place.head()
	s.describe(s.ServerStream.SetHeader)
	err := s.ServerStream.SendMsg(message)
	if err == nil {
		s.served.sent(message)
	}
	return err
}

// describe adds the fields once: to the header of the first response, or to the trailer without a response.
func (s *serverStream) describe(add func(metadata.MD) error) {
	s.describing.Do(func() {
		if s.fields != nil && add(s.fields) != nil { // the handler has sent the header by grpc.SendHeader
			s.ServerStream.SetTrailer(s.fields)
		}
	})
}

// RecvMsg implements grpc.ServerStream. After a refusal it receives no more messages.
func (s *serverStream) RecvMsg(message any) error {
	if s.messages == nil {
		return s.place.receive(s.ServerStream.RecvMsg, message)
	}
	if err := s.next(nil); err != nil {
		return err
	}
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	call := &Call{Method: s.served.call.Method, Message: message, received: true}
	a := s.messages.admit(s.ctx, call)
	if a.status != nil {
		return s.refuse(a)
	}
	if a.followUp != nil {
		if err := s.next(s.messages.follow(s.ctx, a.followUp, &served{call: call})); err != nil {
			return err
		}
	}
	return sleep(s.ctx, a.event.Answer.Delay)
}

// next ends the follow-up of the last message, and records the next message's. The error is the refusal of a message.
func (s *serverStream) next(end func()) error {
	s.mu.Lock()
	last, ended, refusal := s.last, s.ended, s.refusal
	s.last = end
	if ended {
		s.last = nil
	}
	s.mu.Unlock()
	if last != nil {
		last()
	}
	if ended && end != nil { // the handler has returned meanwhile
		end()
	}
	return refusal.Err() // nil for a nil status
}

func (s *serverStream) refuse(a *admission) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal == nil && !s.ended {
		s.refusal = a.status
		s.ServerStream.SetTrailer(a.refusal(s.ctx))
	}
	return a.status.Err()
}

// result is the status of the stream: the status of a refused message, whatever the handler made of it.
func (s *serverStream) result(err error) error {
	s.describe(func(fields metadata.MD) error {
		s.ServerStream.SetTrailer(fields)
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal != nil {
		return s.refusal.Err()
	}
	return err
}

// end ends the follow-up of the last message.
func (s *serverStream) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.next(nil)
}
