package geosource

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
	"github.com/oschwald/maxminddb-golang/v2"

	"github.com/weirproject/weir/server/internal/geosource/geotest"
)

func newSource(t *testing.T, files ...geotest.Records) *Source {
	t.Helper()
	var paths []string
	for _, records := range files {
		paths = append(paths, geotest.File(t, records))
	}
	s, err := New(paths, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLookUpOfBothFamilies(t *testing.T) {
	s := newSource(t,
		geotest.Records{"198.51.100.0/24": geotest.Country("CN"), "2001:db8::/32": geotest.Country("HK")},
		geotest.Records{"198.51.100.0/25": geotest.ASN(64512), "2001:db8:1::/48": geotest.ASN(4294967295)})
	for _, c := range []struct {
		client  string
		country string
		asn     uint32
	}{
		{"198.51.100.7", "CN", 64512},
		{"198.51.100.200", "CN", 0},
		{"198.51.101.1", "", 0},
		{"2001:db8:1::7", "HK", 4294967295},
		{"2001:db8:2::7", "HK", 0},
		{"2001:db9::1", "", 0},
		{"::ffff:198.51.100.7", "CN", 64512},
	} {
		client := netip.MustParseAddr(c.client)
		if country, asn := s.Country(client), s.ASN(client); country != c.country || asn != c.asn {
			t.Errorf("%s: %q, %d; want %q, %d", c.client, country, asn, c.country, c.asn)
		}
	}
	if country, asn := s.Has(); !country || !asn {
		t.Errorf("Has is %t, %t", country, asn)
	}
}

func TestFormatsOfVendors(t *testing.T) {
	text := func(s string) mmdbtype.String { return mmdbtype.String(s) }
	for name, c := range map[string]struct {
		record  mmdbtype.Map
		country string
		asn     uint32
	}{
		"flat":       {mmdbtype.Map{"country": text("China"), "country_code": text("CN"), "asn": text("AS64512")}, "CN", 64512},
		"text":       {mmdbtype.Map{"country": text("CN"), "asn": text("AS64512")}, "CN", 64512},
		"registered": {mmdbtype.Map{"registered_country": mmdbtype.Map{"iso_code": text("US")}}, "US", 0},
		"used and registered": {mmdbtype.Map{"country": mmdbtype.Map{"iso_code": text("DE")},
			"registered_country": mmdbtype.Map{"iso_code": text("US")}}, "DE", 0},
		"odd kinds": {mmdbtype.Map{"country": mmdbtype.Slice{text("CN")}, "country_code": mmdbtype.Uint32(7),
			"autonomous_system_number": mmdbtype.Uint64(64512)}, "", 64512},
		"too large": {mmdbtype.Map{"country_code": text("CN"), "asn": mmdbtype.Uint64(1 << 32)}, "CN", 0},
		"no code":   {mmdbtype.Map{"country_code": text("cn"), "asn": mmdbtype.Uint16(7)}, "", 7},
	} {
		d, err := open(geotest.Make(t, geotest.Records{"198.51.100.0/24": c.record}))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		d.lookUp(netip.MustParseAddr("198.51.100.7"), func(r *record) {
			if r.country() != c.country || r.asn != c.asn {
				t.Errorf("%s: %q, %d; want %q, %d", name, r.country(), r.asn, c.country, c.asn)
			}
		})
	}
}

func TestDatabaseOfIPv4Alone(t *testing.T) {
	d, err := open(geotest.MakeAs(t, mmdbwriter.Options{IPVersion: 4, RecordSize: 24},
		geotest.Records{"198.51.100.0/24": geotest.Country("CN")}))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	d.lookUp(netip.MustParseAddr("198.51.100.7"), func(*record) { found++ })
	d.lookUp(netip.MustParseAddr("2001:db8::1"), func(*record) { found++ })
	if found != 1 {
		t.Errorf("%d found", found)
	}
}

func TestFileWithoutCountriesIsRefused(t *testing.T) {
	path := geotest.File(t, geotest.Records{"198.51.100.0/24": {"city": mmdbtype.String("x")}})
	if _, err := New([]string{path}, time.Hour); err == nil || !strings.Contains(err.Error(), "neither countries") ||
		!strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		if _, err := New([]string{path}, time.Hour); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
}

// TestBadFileKeepsTheLastGoodOne replaces a file in place, as cp does, and by another.
func TestBadFileKeepsTheLastGoodOne(t *testing.T) {
	s := newSource(t, geotest.Records{"198.51.100.0/24": geotest.Country("CN")})
	client, path := netip.MustParseAddr("198.51.100.7"), s.files[0].path
	good := geotest.Make(t, geotest.Records{"198.51.100.0/24": geotest.Country("HK")})
	asn := geotest.Make(t, geotest.Records{"198.51.100.0/24": geotest.ASN(64512)})
	first := s.Load(t.Context(), false)
	for i, content := range [][]byte{nil, good[:len(good)/2], []byte("junk"), asn} {
		write(t, path, content, i)
		n := s.Load(t.Context(), false)
		if n.Err == nil || n.File != nil || n.Revision != first.Revision || s.Country(client) != "CN" {
			t.Errorf("%d: %+v, %q", i, n, s.Country(client))
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if n := s.Load(t.Context(), false); n.Err == nil || s.Country(client) != "CN" {
		t.Errorf("removed: %v, %q", n.Err, s.Country(client))
	}
	write(t, path, good, 9)
	if n := s.Load(t.Context(), false); n.Err != nil || n.Revision == first.Revision || s.Country(client) != "HK" {
		t.Errorf("mended: %+v, %q", n, s.Country(client))
	}
}

func TestUnchangedFileIsReadOnlyOnReload(t *testing.T) {
	s := newSource(t, geotest.Records{"198.51.100.0/24": geotest.Country("CN")})
	first := s.files[0].now.Load()
	before := s.Load(t.Context(), false)
	if after := s.Load(t.Context(), false); s.files[0].now.Load() != first || after.File != before.File {
		t.Error("it was read again")
	}
	if after := s.Load(t.Context(), true); s.files[0].now.Load() == first || after.Revision != before.Revision {
		t.Error("it was not read again")
	}
}

// write replaces the content of a file, which gets a time of its own.
func write(t *testing.T, path string, content []byte, n int) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(time.Duration(n+1) * time.Minute)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// sharedNodes is a valid database whose nodes are shared, so that 2^128 paths lead to its records.
func sharedNodes(t testing.TB) []byte {
	content := geotest.Make(t, geotest.Records{"2001:db8::1/128": {"city": mmdbtype.String("x")}})
	metadata := content[bytes.LastIndex(content, []byte("\xAB\xCD\xEFMaxMind.com")):]
	reader, err := maxminddb.OpenBytes(content)
	if err != nil {
		t.Fatal(err)
	}
	nodes := int(reader.Metadata.NodeCount)
	var tree []byte
	for i := range nodes { // records of 28 bits, both to the next node; the last ones to the data
		next := uint32(i + 1)
		if i >= 127 {
			next = uint32(nodes + 16)
		}
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], next)
		tree = append(tree, b[1], b[2], b[3], b[0]<<4|b[0], b[1], b[2], b[3])
	}
	return append(append(tree, content[len(tree):len(content)-len(metadata)]...), metadata...)
}

func TestSharedNodesAreReadInBoundedTime(t *testing.T) {
	if _, err := open(sharedNodes(t)); err == nil || !strings.Contains(err.Error(), "neither countries") {
		t.Error(err)
	}
}

// TestFilesOfOtherWritersAreRead: a file needs no more than look-ups do. testdata has one of Python's mmdb_writer 0.2.7,
// which leaves data that no network points to.
func TestFilesOfOtherWritersAreRead(t *testing.T) {
	python, err := os.ReadFile("testdata/mmdb_writer.mmdb")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "x", IncludeReservedNetworks: true})
	if err != nil {
		t.Fatal(err)
	}
	_, network, _ := net.ParseCIDR("127.0.0.0/16")
	if err := tree.Insert(network, geotest.Country("CN")); err != nil {
		t.Fatal(err)
	}
	var undescribed bytes.Buffer
	if _, err := tree.WriteTo(&undescribed); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"mmdb_writer": python, "without a description": undescribed.Bytes()} {
		d, err := open(content)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		country := ""
		d.lookUp(netip.MustParseAddr("127.0.0.1"), func(r *record) { country = r.country() })
		if country != "CN" {
			t.Errorf("%s: country is %q, want CN", name, country)
		}
	}
}

// TestDamagedFilesAreRefused: each node and each record that one points to is read when the file is opened.
func TestDamagedFilesAreRefused(t *testing.T) {
	for _, size := range []int{24, 28, 32} {
		content := geotest.MakeAs(t, mmdbwriter.Options{RecordSize: size},
			geotest.Records{"198.51.100.0/24": geotest.Country("CN"), "203.0.113.0/24": geotest.Country("DE")})
		if _, err := open(content); err != nil {
			t.Fatal(err)
		}
		damaged := bytes.Clone(content)
		records := bytes.Index(content, make([]byte, 16)) + 16 // behind the separator
		copy(damaged[records:bytes.LastIndex(content, []byte("MaxMind.com"))-3], bytes.Repeat([]byte{255}, len(content)))
		if _, err := open(damaged); err == nil {
			t.Errorf("%d bits: damaged records are read", size)
		}
		outside := bytes.Clone(content)
		copy(outside, "\xff\xff\xff\xff\xff\xff\xff\xff")
		if _, err := open(outside[:len(outside):len(outside)]); err == nil {
			t.Errorf("%d bits: a node that points outside of the file is read", size)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(geotest.Make(f, geotest.Records{"198.51.100.0/24": geotest.Country("CN"), "::/1": geotest.ASN(1)}))
	f.Add(geotest.MakeAs(f, mmdbwriter.Options{IPVersion: 4, RecordSize: 32},
		geotest.Records{"198.51.100.0/24": {"country_code": mmdbtype.String("CN"), "asn": mmdbtype.String("AS7")}}))
	f.Fuzz(func(t *testing.T, content []byte) {
		d, err := open(content)
		if err != nil {
			return
		}
		for _, client := range []string{"0.0.0.0", "198.51.100.7", "255.255.255.255", "::", "2001:db8::1", "ffff::"} {
			d.lookUp(netip.MustParseAddr(client), func(r *record) { _ = r.country() })
		}
	})
}

func TestLookUpAllocatesNothing(t *testing.T) {
	s := newSource(t, geotest.Records{"198.51.100.0/24": geotest.Country("CN")},
		geotest.Records{"198.51.100.0/24": geotest.ASN(64512)})
	client := netip.MustParseAddr("198.51.100.7")
	if n := testing.AllocsPerRun(1000, func() { s.Country(client); s.ASN(client) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
