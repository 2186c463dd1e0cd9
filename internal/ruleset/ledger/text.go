package ledger

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// TextOf returns the YAML of a rule that was written elsewhere, as ParseDocument reads it, or "" if it is not the same
// rule when it is read again: then something of it cannot be written alone.
func TextOf(spec *rules.Spec) string {
	text, err := YAML(*spec)
	if err != nil {
		return ""
	}
	if again, err := ParseDocument(spec.Name, text); err != nil || !reflect.DeepEqual(again, *spec) {
		return ""
	}
	return text
}

// YAML returns plain data of package rules, or a struct of such data, as it stands in a file of rules.
func YAML(part any) (string, error) { return dump(nodeOf(reflect.ValueOf(part))) }

func dump(node *yaml.Node) (string, error) {
	var out bytes.Buffer
	dumper, err := yaml.NewDumper(&out, yaml.WithIndent(2), yaml.WithCompactSeqIndent(false), yaml.WithLineWidth(-1))
	if err != nil {
		return "", err
	}
	if err := dumper.Dump(node); err != nil {
		return "", err
	}
	err = dumper.Close()
	return out.String(), err
}

// nodeOf is the YAML of a part of a rule: the name of a field is its name in Go with underscores, and fields without a
// value are left out.
func nodeOf(v reflect.Value) *yaml.Node {
	if v.Kind() == reflect.Interface && v.IsNil() {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	}
	switch part := v.Interface().(type) {
	case rules.Cost:
		if part.Units > 0 {
			return nodeOf(reflect.ValueOf(part.Units))
		}
	case []rules.Translation:
		return messageOf(part)
	}
	switch v.Kind() {
	case reflect.Struct:
		return mappingOf(v)
	case reflect.Pointer, reflect.Interface:
		return nodeOf(v.Elem())
	case reflect.Map:
		node := &yaml.Node{Kind: yaml.MappingNode}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			node.Content = append(node.Content, nodeOf(key), nodeOf(v.MapIndex(key)))
		}
		return node
	case reflect.Slice:
		return sequenceOf(v)
	case reflect.String:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v.String()}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(v.Interface())}
}

// messageOf is a text, or a text for each language.
func messageOf(list []rules.Translation) *yaml.Node {
	if len(list) == 1 && list[0].Language == "" {
		return nodeOf(reflect.ValueOf(list[0].Text))
	}
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, one := range list {
		node.Content = append(node.Content, nodeOf(reflect.ValueOf(one.Language)), nodeOf(reflect.ValueOf(one.Text)))
	}
	return node
}

func mappingOf(v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			continue
		}
		name := &yaml.Node{Kind: yaml.ScalarNode, Value: ruleset.FieldName(v.Type().Field(i).Name)}
		node.Content = append(node.Content, name, nodeOf(v.Field(i)))
	}
	return node
}

// sequenceOf is a list, on one line if it is one of texts; one text stands alone.
func sequenceOf(v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range v.Len() {
		node.Content = append(node.Content, nodeOf(v.Index(i)))
	}
	if v.Type().Elem().Kind() == reflect.String {
		node.Style = yaml.FlowStyle
		if len(node.Content) == 1 {
			return node.Content[0]
		}
	}
	return node
}
