package redissource

import (
	"encoding/json"
	"errors"
	"strings"
)

// plain is a text without the additions of a serializer of JSON, such as Spring's for RedisTemplate<String, Object>:
// the quotes of a text, the type of a number in ["java.lang.Long",5].
func plain(text string) string {
	switch {
	case len(text) < 2:
		return text
	case text[0] == '"':
		var value string
		if json.Unmarshal([]byte(text), &value) == nil {
			return value
		}
	case text[0] == '[':
		if value, err := typedText(text); err == nil {
			return value
		}
	}
	return text
}

func typedText(text string) (string, error) {
	var pair []json.RawMessage
	if err := json.Unmarshal([]byte(text), &pair); err != nil || len(pair) != 2 {
		return "", errMessage
	}
	var class, value string
	if err := json.Unmarshal(pair[0], &class); err != nil || !strings.HasPrefix(class, "java.") {
		return "", errMessage
	}
	if err := json.Unmarshal(pair[1], &value); err == nil {
		return value, nil
	}
	var number json.Number
	err := json.Unmarshal(pair[1], &number)
	return number.String(), err
}

// typed reads the rest of a value with its type. The beginning of any other list is returned.
func typed(d *json.Decoder) (value json.Token, err error) {
	class, err := d.Token()
	if name, ok := class.(string); err != nil || !ok || !strings.HasPrefix(name, "java.") {
		return json.Delim('['), err
	}
	value, err = d.Token()
	end, wrong := d.Token()
	if end != json.Delim(']') {
		return nil, errMessage
	}
	return value, errors.Join(err, wrong)
}

// plainFields are the fields of a hash with plain names and values. A name in quotes beside the plain one stays.
func plainFields(fields map[string]string) map[string]string {
	list := make(map[string]string, len(fields))
	for name, value := range fields {
		if short := plain(name); short != name {
			if _, both := fields[short]; !both {
				name = short
			}
		}
		list[name] = plain(value)
	}
	return list
}
