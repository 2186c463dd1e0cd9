package geosource

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/oschwald/maxminddb-golang/v2"
	"github.com/oschwald/maxminddb-golang/v2/mmdbdata"

	"github.com/weirproject/weir/rules"
)

// A database is one file in memory. It is immutable.
type database struct {
	reader       *maxminddb.Reader
	country, asn bool      // some records have it
	records      sync.Pool // of *record, so that a look-up does not allocate
}

// open looks for countries and autonomous systems in some records of the first networks.
const (
	maxNetworks = 1 << 16
	maxRecords  = 1 << 12
)

// open checks every node and record of a database, which may be hostile: afterwards a look-up reads at most 128 nodes
// and one valid record. Reader.Verify would also check what no look-up needs, and refuse what other writers make: a
// file without a description, or with data that only other data points to.
func open(content []byte) (*database, error) {
	reader, err := maxminddb.OpenBytes(content)
	if err == nil {
		err = check(reader, content)
	}
	if err != nil {
		return nil, fmt.Errorf("it is no valid database in MaxMind's format: %w", err)
	}
	d := &database{reader: reader}
	d.records.New = func() any { return new(record) }
	d.sample()
	if !d.country && !d.asn {
		return nil, fmt.Errorf("the database %.80q has neither countries (country.iso_code, country_code) nor "+
			"autonomous systems (autonomous_system_number, asn)", reader.Metadata.DatabaseType)
	}
	return d, nil
}

// check reads each node of the search tree, and each record that a node points to.
func check(reader *maxminddb.Reader, content []byte) error {
	m := &reader.Metadata
	if m.RecordSize != 24 && m.RecordSize != 28 && m.RecordSize != 32 {
		return fmt.Errorf("record_size is %d; allowed: 24, 28, 32", m.RecordSize)
	}
	if m.NodeCount == 0 || m.IPVersion != 4 && m.IPVersion != 6 {
		return fmt.Errorf("node_count is %d and ip_version %d; allowed: 1 or more, and 4 or 6", m.NodeCount,
			m.IPVersion)
	}
	seen := make(map[uint]bool)
	for node := range m.NodeCount {
		for _, to := range children(content[node*m.RecordSize/4:], m.RecordSize) {
			if to <= m.NodeCount || seen[to] {
				continue
			}
			seen[to] = true
			if to < m.NodeCount+separator {
				return fmt.Errorf("node %d of the search tree points into the separator", node)
			}
			if err := reader.LookupOffset(uintptr(to - m.NodeCount - separator)).Decode(new(record)); err != nil {
				return fmt.Errorf("record of node %d: %w", node, err)
			}
		}
	}
	return nil
}

// separator is the number of bytes between the search tree and the records (MaxMind DB format 2.0).
const separator = 16

// children are the two records of a node, of 24, 28 or 32 bits each. Of 28 bits, the byte in the middle has the upper
// four of both.
func children(node []byte, bits uint) [2]uint {
	size := bits / 8
	number := func(b []byte) (n uint) {
		for _, c := range b {
			n = n<<8 | uint(c)
		}
		return n
	}
	if bits == 28 {
		return [2]uint{uint(node[3]>>4)<<24 | number(node[:3]), uint(node[3]&15)<<24 | number(node[4:7])}
	}
	return [2]uint{number(node[:size]), number(node[size : 2*size])}
}

// sample finds the fields of the records. The nodes of a hostile file may form far more paths than there are nodes, so
// leaves are counted, leaves without a record too.
func (d *database) sample() {
	n, seen := 0, make(map[uintptr]bool)
	all := d.reader.Networks(maxminddb.IncludeNetworksWithoutData(), maxminddb.IncludeAliasedNetworks())
	for result := range all {
		var r record
		if result.Found() && !seen[result.Offset()] && result.Decode(&r) == nil {
			seen[result.Offset()] = true
			d.country, d.asn = d.country || r.country() != "", d.asn || r.asn != 0
		}
		if n++; n == maxNetworks || len(seen) == maxRecords || d.country && d.asn {
			return
		}
	}
}

// built is the time that the file states.
func (d *database) built() time.Time { return d.reader.Metadata.BuildTime() }

// lookUp calls use with the record of an address, if there is one.
func (d *database) lookUp(client netip.Addr, use func(*record)) {
	if client.Is6() && d.reader.Metadata.IPVersion == 4 {
		return
	}
	r := d.records.Get().(*record)
	defer d.records.Put(r)
	*r = record{}
	if result := d.reader.Lookup(client); result.Found() && result.Decode(r) == nil {
		use(r)
	}
}

// A record has the fields that are read of a network's record.
type record struct {
	place, flat, registered string // country.iso_code or country, country_code, registered_country.iso_code
	asn                     uint32
}

// country is the code of the country; "" if the record has no country. The country where a network is registered stands
// in for that where it is used: satellites and anycast have no other.
func (r *record) country() string {
	for _, code := range []string{r.place, r.flat, r.registered} {
		if rules.IsCountry(code) {
			return code
		}
	}
	return ""
}

// UnmarshalMaxMindDBCursor implements mmdbdata.CursorUnmarshaler. Fields of another kind are left out, since the
// formats of vendors differ.
func (r *record) UnmarshalMaxMindDBCursor(at mmdbdata.Cursor) (mmdbdata.Cursor, error) {
	return r.fields(at, nil)
}

// fields reads the fields of a map: the record itself, or with code the iso_code of a country.
func (r *record) fields(at mmdbdata.Cursor, code *string) (next mmdbdata.Cursor, err error) {
	fields, err := at.Map()
	if err != nil {
		return next, err
	}
	for {
		name, value, more := fields.Next(next)
		if !more {
			return fields.End()
		}
		switch {
		case code == nil:
			next, err = r.field(string(name), value)
		case string(name) == "iso_code":
			next, err = text(value, code)
		default:
			next, err = value.Skip()
		}
		if err != nil {
			return next, err
		}
	}
}

func (r *record) field(name string, at mmdbdata.Cursor) (next mmdbdata.Cursor, err error) {
	switch name {
	case "country":
		return r.code(at, &r.place)
	case "registered_country":
		return r.code(at, &r.registered)
	case "country_code":
		return text(at, &r.flat)
	case "autonomous_system_number", "asn":
		return r.number(at)
	}
	return at.Skip()
}

// code reads a country: its iso_code, or the text itself.
func (r *record) code(at mmdbdata.Cursor, to *string) (next mmdbdata.Cursor, err error) {
	if kind, err := at.Kind(); err != nil || kind != mmdbdata.KindMap {
		return text(at, to)
	}
	return r.fields(at, to)
}

// text reads a text, and skips any other value.
func text(at mmdbdata.Cursor, to *string) (next mmdbdata.Cursor, err error) {
	kind, err := at.Kind()
	if err != nil {
		return next, err
	}
	if kind != mmdbdata.KindString {
		return at.Skip()
	}
	*to, next, err = at.ReadString()
	return next, err
}

// number reads 64512, or AS64512 as a text.
func (r *record) number(at mmdbdata.Cursor) (next mmdbdata.Cursor, err error) {
	kind, err := at.Kind()
	if err != nil || kind == mmdbdata.KindString {
		var name string
		next, err = text(at, &name)
		n, _ := strconv.ParseUint(strings.TrimPrefix(name, "AS"), 10, 32) // 0 if it is wrong
		r.asn = uint32(n)
		return next, err
	}
	if kind != mmdbdata.KindUint16 && kind != mmdbdata.KindUint32 && kind != mmdbdata.KindUint64 {
		return at.Skip()
	}
	n, next, err := at.ReadUint()
	if n <= 1<<32-1 {
		r.asn = uint32(n)
	}
	return next, err
}
