package grpcserver

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A lenient codec reads messages with strings that are not UTF-8; protobuf refuses them. A proxy sends the bytes of its
// client in them, and would let a request pass when its question is refused: one byte in a header would turn all limits
// off. Each invalid byte is read as U+FFFD.
type lenient struct{ encoding.CodecV2 }

func newCodec() lenient { return lenient{encoding.GetCodecV2(protocodec.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c lenient) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	m, ok := v.(proto.Message)
	if err == nil || !ok {
		return err
	}
	text, ok := repaired(nil, data.Materialize(), m.ProtoReflect().Descriptor())
	if !ok {
		return err
	}
	return proto.Unmarshal(text, m)
}

// repaired appends a message to text, with strings in UTF-8. It returns false for bytes that are no message.
func repaired(text, message []byte, of protoreflect.MessageDescriptor) ([]byte, bool) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, false
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			return nil, false
		}
		field := of.Fields().ByNumber(number)
		if kind != protowire.BytesType || field == nil || field.Kind() == protoreflect.BytesKind {
			text = append(text, message[:n+size]...)
		} else {
			value, _ := protowire.ConsumeBytes(message[n:])
			value, ok := repairedValue(value, field)
			if !ok {
				return nil, false
			}
			text = protowire.AppendBytes(protowire.AppendTag(text, number, kind), value)
		}
		message = message[n+size:]
	}
	return text, true
}

// repairedValue is a field's value: a string, a message, or a packed list of numbers.
func repairedValue(value []byte, field protoreflect.FieldDescriptor) ([]byte, bool) {
	switch field.Kind() {
	case protoreflect.StringKind:
		if !utf8.Valid(value) {
			value = []byte(strings.ToValidUTF8(string(value), string(utf8.RuneError)))
		}
	case protoreflect.MessageKind:
		return repaired(nil, value, field.Message())
	}
	return value, true
}
