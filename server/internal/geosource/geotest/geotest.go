// Package geotest makes databases in MaxMind's format for tests, with the vendor's own writer.
package geotest

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
)

// Records are the records of networks, such as Country("CN").
type Records map[string]mmdbtype.Map

// Country is a record as in GeoLite2-Country.
func Country(code string) mmdbtype.Map {
	return mmdbtype.Map{
		"continent": mmdbtype.Map{"code": mmdbtype.String("AS")},
		"country":   mmdbtype.Map{"iso_code": mmdbtype.String(code), "names": mmdbtype.Map{"en": mmdbtype.String("x")}},
	}
}

// ASN is a record as in GeoLite2-ASN.
func ASN(number uint32) mmdbtype.Map {
	return mmdbtype.Map{"autonomous_system_number": mmdbtype.Uint32(number),
		"autonomous_system_organization": mmdbtype.String("Example")}
}

// Make makes a database for IPv4 and IPv6.
func Make(t testing.TB, records Records) []byte {
	return MakeAs(t, mmdbwriter.Options{}, records)
}

// MakeAs is Make with options of the writer.
func MakeAs(t testing.TB, options mmdbwriter.Options, records Records) []byte {
	t.Helper()
	options.DatabaseType, options.IncludeReservedNetworks = "Test", true
	options.Description = map[string]string{"en": "of a test"}
	tree, err := mmdbwriter.New(options)
	if err != nil {
		t.Fatal(err)
	}
	for text, record := range records {
		_, network, err := net.ParseCIDR(text)
		if err == nil {
			err = tree.Insert(network, record)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var content bytes.Buffer
	if _, err := tree.WriteTo(&content); err != nil {
		t.Fatal(err)
	}
	return content.Bytes()
}

// File writes a database to a file of its own.
func File(t testing.TB, records Records) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "geo.mmdb")
	if err := os.WriteFile(path, Make(t, records), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
