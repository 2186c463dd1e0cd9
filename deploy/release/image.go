package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is nobody, on all systems that have one.
const user = "65534"

// An image is an OCI layout, whose files are named by their content.
type image struct{ files []file }

// add adds a blob.
func (i *image) add(kind string, text []byte) oci.Descriptor {
	d := oci.Descriptor{MediaType: kind, Size: int64(len(text)),
		Digest: digest.FromBytes(text)}
	i.files = append(i.files, plain("blobs/sha256/"+d.Digest.Encoded(), text))
	return d
}

// image writes the image for all Linux programs, as an archive of an OCI layout.
func (r *release) image(programs []*program) error {
	index := oci.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: oci.MediaTypeImageIndex}
	i := new(image)
	for _, p := range programs {
		if p.os == "linux" {
			d := i.add(oci.MediaTypeImageManifest, asJSON(r.manifest(i, p)))
			d.Platform = &oci.Platform{OS: p.os, Architecture: p.arch}
			index.Manifests = append(index.Manifests, d)
		}
	}
	if len(index.Manifests) == 0 {
		return nil
	}
	all := i.add(oci.MediaTypeImageIndex, asJSON(index))
	all.Annotations = map[string]string{oci.AnnotationRefName: r.version}
	top := oci.Index{Versioned: index.Versioned, MediaType: oci.MediaTypeImageIndex, Manifests: []oci.Descriptor{all}}
	files := append(i.files, plain(oci.ImageLayoutFile, asJSON(oci.ImageLayout{Version: oci.ImageLayoutVersion})),
		plain(oci.ImageIndexFile, asJSON(top)))
	return r.write("weir_"+r.version+"_image.tar", archive(withDirs(files), r.modified))
}

// manifest adds the image of one program.
func (r *release) manifest(i *image, p *program) oci.Manifest {
	layer := archive(withDirs([]file{
		{name: "bin/weir", mode: 0o755, text: p.binary},
		{name: "bin/ratelimit", link: "weir"},
		plain("etc/group", []byte("nobody:x:"+user+":\n")),
		plain("etc/passwd", []byte("nobody:x:"+user+":"+user+":nobody:/:/bin/weir\n")),
		plain("etc/ssl/certs/ca-certificates.crt", roots()),
		plain("usr/share/doc/weir/NOTICES", r.notices),
	}), r.modified)
	config := configuration{Created: r.modified.Format("2006-01-02T15:04:05Z"), OS: p.os, Architecture: p.arch,
		// No WEIR_HTTP: /bin/ratelimit, in place of the image of envoyproxy/ratelimit, has another port 8080.
		Config: settings{User: user + ":" + user, Env: []string{"PATH=/bin"},
			Entrypoint: []string{"/bin/weir"}, Cmd: []string{"serve"}, Labels: r.labels(), WorkingDir: "/",
			ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}, "8082/tcp": {}, "6380/tcp": {}},
			Healthcheck:  &healthcheck{Test: []string{"CMD", "/bin/weir", "health"}}},
		RootFS: oci.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}}}
	return oci.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: oci.MediaTypeImageManifest,
		Config: i.add(oci.MediaTypeImageConfig, asJSON(config)),
		Layers: []oci.Descriptor{i.add(oci.MediaTypeImageLayerGzip, gzipped(layer))}, Annotations: r.labels()}
}

func (r *release) labels() map[string]string {
	return map[string]string{oci.AnnotationTitle: "weir", oci.AnnotationVersion: r.version,
		oci.AnnotationSource: "https://github.com/weirproject/weir"}
}

// A configuration is oci.Image with a health check, which Docker reads and the specification does not have.
type configuration struct {
	Created      string     `json:"created"`
	Architecture string     `json:"architecture"`
	OS           string     `json:"os"`
	Config       settings   `json:"config"`
	RootFS       oci.RootFS `json:"rootfs"`
}

type settings struct {
	User         string
	ExposedPorts map[string]struct{}
	Env          []string
	Entrypoint   []string
	Cmd          []string
	WorkingDir   string
	Labels       map[string]string
	Healthcheck  *healthcheck
}

type healthcheck struct{ Test []string }

// roots are the certificate authorities that Mozilla trusts, of the version in go.sum. The authorities of the building
// machine would make another image.
func roots() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a bytes.Buffer has no errors
	}
	return b.Bytes()
}

func asJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // all values are those of this file
	}
	return text
}
