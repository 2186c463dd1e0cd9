package backtest

import (
	"net/netip"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/accesslog"
)

// An event is a request of the log, as a front end would have read it.
type event struct {
	at     int64 // when it is decided, in microseconds
	time   int64 // in the log
	took   int64 // accesslog.Unknown: not known
	bytes  int64
	line   int64
	file   int32
	status int16 // 0: not known
	good   bool  // its client is certainly legitimate

	id     uint64 // of the client: see idOf
	client netip.Addr
	method string
	host   string
	path   string // in the form that rules match
	raw    string // the path as it was sent
	query  string
	user   string
	agent  string
	fields fields

	domain      string
	descriptors []accesslog.Descriptor // of a RateLimitRequest, which is no HTTP request
	hits        int64
}

// fields are the header fields of a request.
type fields []accesslog.Field

// Values implements webvalues.Request's Fields.
func (f *fields) Values(name string) (values []string) {
	for i := range *f {
		if (*f)[i].Name == name {
			values = append(values, (*f)[i].Value)
		}
	}
	return values
}

// failing reports whether the log says that the request was answered with an error, other than by a limit.
func (e *event) failing() bool { return e.status >= 400 && !refusedThen(int(e.status)) }

// refusedThen reports whether a status is one that limits answer.
func refusedThen(status int) bool { return status == 429 || status == 503 }

// request is what rules see.
func (e *event) request(r *rules.Request) {
	if len(e.descriptors) > 0 {
		e.describe(r, 0)
		return
	}
	*r = rules.Request{Method: e.method, Host: e.host, Path: e.path, User: e.user, Client: e.client}
}

// describe is what rules see of a descriptor.
func (e *event) describe(r *rules.Request, i int) {
	d := &e.descriptors[i]
	*r = rules.Request{Service: e.domain, Client: e.client, DescriptorKeys: d.Keys, DescriptorValues: d.Values,
		Attributes: (*described)(d)}
}

// A described is the attributes of a descriptor.
type described accesslog.Descriptor

// Header implements rules.Attributes: a descriptor has none.
func (*described) Header(string) string { return "" }

// Query implements rules.Attributes.
func (*described) Query(string) string { return "" }

// Cookie implements rules.Attributes.
func (*described) Cookie(string) string { return "" }

// Descriptor implements rules.Attributes.
func (d *described) Descriptor(name string) string {
	for i, key := range d.Keys {
		if key == name {
			return d.Values[i]
		}
	}
	return ""
}

// Clients are identified by 64 bits: an address of IPv4, or a network /64 of IPv6, as rules count them by default.
const (
	idV4      = 0xffff_ffff_0000_0000 // as addresses of IPv6 these are for multicast, which no client has
	idUnknown = 0xffff_fffe_0000_0000
)

func idOf(client netip.Addr) uint64 {
	client = client.Unmap()
	switch {
	case !client.IsValid():
		return idUnknown
	case client.Is4():
		a := client.As4()
		return idV4 | uint64(a[0])<<24 | uint64(a[1])<<16 | uint64(a[2])<<8 | uint64(a[3])
	}
	a := client.As16()
	var id uint64
	for _, b := range a[:8] {
		id = id<<8 | uint64(b)
	}
	return id
}

// prefixOf is the address or the network of an id.
func prefixOf(id uint64) netip.Prefix {
	if id&idV4 == idV4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}), 32)
	}
	var a [16]byte
	for i := range 8 {
		a[i] = byte(id >> (56 - 8*i))
	}
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// nameOf is the client of an id for people.
func nameOf(id uint64) string {
	switch prefix := prefixOf(id); {
	case id == idUnknown:
		return "unknown"
	case prefix.IsSingleIP():
		return prefix.Addr().String()
	default:
		return prefix.String()
	}
}
