package redissource

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// reloadAll is the message that requests a reading of all hashes.
const reloadAll = "RELOAD_ALL"

var errMessage = errors.New("allowed: RELOAD_ALL, or one rule as a JSON object of the hash's fields with its id, " +
	`such as {"id":"login","deleted":true}`)

// decode reads the fields of a message. Numbers and booleans may be of JSON or strings, as in
// hashes.
func decode(text string) (map[string]string, error) {
	if !utf8.ValidString(text) { // the decoder would replace characters
		return nil, errMessage
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return nil, errMessage
	}
	fields := make(map[string]string)
	for d.More() {
		if err := field(d, fields); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, errMessage
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the object; send one rule a message")
	}
	return fields, nil
}

func field(d *json.Decoder, fields map[string]string) error {
	key, err := d.Token()
	name, ok := key.(string)
	if err != nil || !ok {
		return errMessage
	}
	if _, twice := fields[name]; twice {
		return fmt.Errorf("field %.80q is given twice", name)
	}
	value, err := d.Token()
	if err != nil {
		return errMessage
	}
	switch v := value.(type) {
	case string:
		fields[name] = v
	case json.Number:
		fields[name] = v.String()
	case bool:
		fields[name] = fmt.Sprint(v)
	default:
		return fmt.Errorf("field %.80q is not a string, number, true or false; leave out what has no value", name)
	}
	return nil
}
