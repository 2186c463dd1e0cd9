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
	mostNetworks = 1 << 16
	mostRecords  = 1 << 12
)

// open checks a whole database, which may be hostile: afterwards a look-up reads at most 128 nodes and one valid
// record.
func open(content []byte) (*database, error) {
	reader, err := maxminddb.OpenBytes(content)
	if err == nil {
		err = reader.Verify()
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

// sample finds what the records have. The nodes of a hostile file may form far more paths than there are nodes, so
// leaves are counted, those without a record too.
func (d *database) sample() {
	n, seen := 0, make(map[uintptr]bool)
	all := d.reader.Networks(maxminddb.IncludeNetworksWithoutData(), maxminddb.IncludeAliasedNetworks())
	for result := range all {
		var r record
		if result.Found() && !seen[result.Offset()] && result.Decode(&r) == nil {
			seen[result.Offset()] = true
			d.country, d.asn = d.country || r.country() != "", d.asn || r.asn != 0
		}
		if n++; n == mostNetworks || len(seen) == mostRecords || d.country && d.asn {
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

// A record is what is read of a network's.
type record struct {
	place, flat, registered string // country.iso_code or country, country_code, registered_country.iso_code
	asn                     uint32
}

// country is the code of the country; "" if the record has none. The country where a network is registered stands in
// for that where it is used: satellites and anycast have no other.
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

// fields reads the fields of a map: those of the record, or with code the iso_code of a country.
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
