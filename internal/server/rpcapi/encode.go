package rpcapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirproject/weir/proto/weir/v1"
)

// appendMessage appends a message as a JSON object. protojson would not do: it writes units as texts, which the API
// refuses. A field that this version does not know becomes a member that the API does not know, and refuses: what it
// asks for would not happen.
func appendMessage(b []byte, m protoreflect.Message) []byte {
	b = append(b, '{')
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		b = appendName(b, string(f.Name()))
		switch value := m.Get(f); {
		case f.IsMap():
			b = appendMap(b, value.Map())
		case f.IsList():
			b = appendList(b, value.List())
		default:
			b = appendValue(b, value)
		}
	}
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		b = append(appendName(b, fmt.Sprintf("field number %d", number)), "null"...)
	}
	return append(b, '}')
}

// appendName appends a member's name. The first follows the opening brace.
func appendName(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(appendText(b, name), ':')
}

// appendMap appends texts in the order of their names, so that a mistake is always the same one.
func appendMap(b []byte, texts protoreflect.Map) []byte {
	values := make(map[string]string, texts.Len())
	texts.Range(func(name protoreflect.MapKey, value protoreflect.Value) bool {
		values[name.String()] = value.String()
		return true
	})
	b = append(b, '{')
	for _, name := range slices.Sorted(maps.Keys(values)) {
		b = appendText(appendName(b, name), values[name])
	}
	return append(b, '}')
}

// appendList appends an array of objects, or of descriptors the object with their names.
func appendList(b []byte, list protoreflect.List) []byte {
	if _, named := list.NewElement().Message().Interface().(*weirv1.Descriptor); named {
		return appendDescriptors(b, list)
	}
	b = append(b, '[')
	for i := range list.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendMessage(b, list.Get(i).Message())
	}
	return append(b, ']')
}

func appendDescriptors(b []byte, list protoreflect.List) []byte {
	b = append(b, '{')
	for i := range list.Len() {
		m := list.Get(i).Message()
		d := m.Interface().(*weirv1.Descriptor)
		b = appendName(b, d.GetName())
		if len(m.GetUnknown()) > 0 {
			b = appendMessage(b, m) // the API refuses an object there
			continue
		}
		b = appendText(b, d.GetValue())
	}
	return append(b, '}')
}

func appendValue(b []byte, value protoreflect.Value) []byte {
	switch v := value.Interface().(type) {
	case protoreflect.Message:
		return appendMessage(b, v)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case bool:
		return strconv.AppendBool(b, v)
	}
	return appendText(b, value.String())
}

func appendText(b []byte, text string) []byte {
	quoted, _ := json.Marshal(text) // a text cannot fail
	return append(b, quoted...)
}
