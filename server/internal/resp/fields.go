package resp

import (
	"fmt"
	"net/netip"
	"net/textproto"
	"strings"

	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// An attribute is a field with a source and a name: header.X-User alice.
type attribute struct{ source, name, value string }

// attributes are in the order of the command.
type attributes []attribute

func (a attributes) get(source, name string) string {
	for i := range a {
		if a[i].name == name && a[i].source == source {
			return a[i].value
		}
	}
	return ""
}

// Header implements rules.Attributes.
func (a attributes) Header(name string) string { return a.get("header", name) }

// Query implements rules.Attributes.
func (a attributes) Query(name string) string { return a.get("query", name) }

// Cookie implements rules.Attributes.
func (a attributes) Cookie(name string) string { return a.get("cookie", name) }

// JSON is a body that is not read.
func (a attributes) JSON() *rules.JSON { return rules.UnreadJSON(-1) }

// Descriptor implements rules.Attributes.
func (a attributes) Descriptor(name string) string { return a.get("descriptor", name) }

// allowedFields are named as in the keys of rules.
const allowedFields = "method, host, path, route, user, service, client.ip, header.NAME, query.NAME, " +
	"cookie.NAME or descriptor.NAME"

// field reads one field of the request and its value.
func (q *question) field(c *conn, words [][]byte) error {
	name := text(words[0])
	if len(words) < 2 {
		return fmt.Errorf("the field %.80q has no value; leave out fields that a request lacks", name)
	}
	value := text(words[1])
	switch name {
	case "method":
		return once(name, &q.request.Method, value)
	case "route":
		return once(name, &q.request.Route, value)
	case "user":
		return once(name, &q.request.User, value)
	case "service":
		return once(name, &q.request.Service, value)
	case "host":
		host, err := pathform.Host(value)
		if err != nil {
			return err
		}
		return once(name, &q.request.Host, host)
	case "path":
		path, err := c.server.form.Path(value)
		if err != nil {
			return err
		}
		return once(name, &q.request.Path, path)
	case "client.ip":
		return q.client(value)
	}
	return q.attribute(name, value)
}

// once refuses a second value of a field: the caller and the rules might not agree on which counts.
func once(name string, into *string, value string) error {
	if *into != "" {
		return fmt.Errorf("the field %.80q occurs twice", name)
	}
	*into = value
	return nil
}

func (q *question) client(value string) error {
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return fmt.Errorf("client.ip is %.80q; allowed: an IPv4 or IPv6 address without a port", value)
	}
	if q.request.Client.IsValid() {
		return fmt.Errorf(`the field "client.ip" occurs twice`)
	}
	q.request.Client = addr
	return nil
}

// attribute reads a field with a source and a name, such as header.NAME.
func (q *question) attribute(field, value string) error {
	source, name, _ := strings.Cut(field, ".")
	switch source {
	case "header":
		name = textproto.CanonicalMIMEHeaderKey(name)
	case "query", "cookie", "descriptor":
	default:
		name = ""
	}
	if name == "" {
		return fmt.Errorf("there is no field %.80q; allowed: %s, and LIMIT, RULES, COST, TIMES, LEASE, ID, FOR",
			field, allowedFields)
	}
	for i := range q.given {
		if q.given[i].name == name && q.given[i].source == source {
			return fmt.Errorf("the field %.80q occurs twice", field)
		}
	}
	q.given = append(q.given, attribute{source, name, value})
	return nil
}
