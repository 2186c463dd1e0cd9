package rules

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// A Server is the section server of a file: the settings of weir serve. The zero value of a field is its default.
// docs/reference/server.md describes each.
type Server struct {
	Store        string        // "memory", or the URL of a Redis
	StoreTimeout time.Duration // of a Redis call
	StorePrefix  string        // of all keys of limits in Redis
	Nodes        int           // processes that share the store
	Without      []string      // layers before the store to leave out
	MaxKeys      int           // in memory
	MaxBytes     int64         // in memory
	FallbackKeys int           // keys that each process counts for on_store_error: local
	State        string        // file that keeps the counts in memory

	ConfigToken string        // file with the bearer token of a URL with rules
	ConfigPoll  time.Duration // between reads of files and URLs
	// ConfigPlainHTTP accepts rules over http from other machines.
	ConfigPlainHTTP bool
	Hashes          []string      // URLs of Redis with a hash for each rule; "redis": that of Store
	HashPrefix      string        // of the keys of Hashes
	HashChannel     string        // announces their changes
	Refresh         time.Duration // between reads of Redis
	StartWithin     time.Duration // for sources that cannot be read, at the start
	Ledger          string        // of operators' rules
	LedgerName      string        // prefix of its keys, and its channel
	AllowEmpty      bool          // accept an empty rule set

	TrustedProxies []string // addresses and networks; "unix": peers on a Unix socket
	ClientHeader   string   // such as "X-Forwarded-For"
	UserHeader     string
	CountryHeader  string
	Geo            []string // files with countries or autonomous systems of addresses
	PathForm       []string // words of pathform.Parse: the form that paths have before they are matched
	AnyMethod      bool
	HashKeyFile    string // file with the secret for long keys

	HTTP, Gateway, RESP, GRPC, Metrics Listener

	RESPPasswordFile string
	RESPFailOpen     bool
	GRPCMaxAge       time.Duration // of a connection
	GRPCMaxAgeGrace  time.Duration // for its calls, afterwards
	MetricsPath      string
	RLSNoHeaders     bool
	RLSNoBody        bool
	RLSUnavailable   bool

	Upstream         string // URL, or "demo"
	UpstreamHost     bool   // its name is sent as Host
	UpstreamRequests int    // at a time
	Service          string // its name, for rules
	ForwardOverrides bool
	StrictQuery      bool

	AccessLog       string // file; "-": standard output
	AccessLogFormat string
	AccessLogEvery  int

	TokenFile, ReadTokenFile           string // of the API
	AdminTokenFile, AdminReadTokenFile string
	AdminCerts, AdminReadCerts         []string // common names of client certificates
	Open                               bool     // listeners may be public without authentication

	ShutdownTimeout, Drain time.Duration
	NodeName               string // of this process in records

	Audit     []string // "redis", a URL, "log", or a file
	AuditKeys string
	AuditKeep int
	AuditSize int // MB

	Alerts           string
	AlertWebhookFile string
	AlertSecretFile  string
	AlertFormat      string
	AlertLanguage    string

	Telemetry string
	StateDir  string
	OTLP      string

	LogFormat, LogLevel string

	// Settings of envoyproxy/ratelimit.
	EnvoyConfig               string    // directory of its configurations
	Algorithm                 [8]string // of its limits: of all, and by the second, minute, … year
	EnvoyDotFiles, EnvoyMerge bool
	EnvoyHTTP, EnvoyDebug     Listener
	EnvoyHealth               []string // what /healthcheck waits for
	EnvoyHeaders              []string // names of the headers with limit, remaining and reset
	EnvoyShadow, EnvoyQuota   bool
	EnvoyMetadata             bool
	EnvoyNearLimit            float64 // part of a limit

	XDSServer              string // host:port
	XDSNode                string
	XDSMetadata            []string // KEY=VALUE
	XDSHeaders             []string // KEY=VALUE
	XDSTLS                 bool
	XDSCA, XDSCert, XDSKey string
	XDSServerName          string // in its certificate
	XDSBackoff             time.Duration
	XDSBackoffMax          time.Duration
	XDSMaxMessage          int // bytes
}

// A Listener is an address with its TLS.
type Listener struct {
	Listen         string // host:port, unix:///path, fd:NAME or "off"
	TLSCert        []string
	TLSKey         []string
	ClientCA       string
	ClientNames    []string // of which a client certificate has one
	ReusePort      bool     // SO_REUSEPORT
	ProxyProtocol  bool
	MaxConnections int
}

// A Setting describes one field of the section server.
type Setting struct {
	Path    string // such as store.timeout; a section with a main value has that value's path too, such as store
	About   string // in words
	Default string
	Bool    bool // true or false
	Secret  bool // a file with a secret, which may be in a variable instead
	Live    bool // a change is in force without a restart
}

// Settings are the fields of the section server, in the order of the reference.
func Settings() (list []Setting) {
	serverFields.walk("", func(path string, f *field[Server]) {
		list = append(list, Setting{Path: path, About: plainText(f.about), Default: plainText(f.unset),
			Bool: f.value.name == "enabled", Secret: f.value.name == "secret_file", Live: f.value.live})
	})
	return list
}

// Set sets a field by its path. A list has several values, or one with commas. The error says which values are allowed.
func (s *Server) Set(path string, values ...string) error {
	f := serverFields.find(path)
	if f != nil && f.value.most > 1 && f.value.commas && len(values) == 1 {
		values = strings.Split(values[0], ",")
	}
	given := new(Server)
	if err := errors.Join(given.put(path, values), given.meaning()); err != nil {
		return err
	}
	return s.put(path, values)
}

// put reads values as if they were written in a file.
func (s *Server) put(path string, values []string) error {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for _, value := range values {
		n.Content = append(n.Content, scalar(strings.TrimSpace(value)))
	}
	if len(values) == 1 {
		n = n.Content[0]
	}
	words := strings.Split(path, ".")
	for i := len(words) - 1; i >= 0; i-- {
		n = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{scalar(words[i]), n}}
	}
	d := &decoder{report: &report{}}
	serverFields.read(d, at(-1, "server"), n, s)
	return d.messages()
}

// meaning checks the meaning of a value, beyond its form.
func (s *Server) meaning() error {
	b := &builder{report: &report{}, set: new(Set)}
	b.server(&File{Server: *s})
	return b.messages()
}

// Check checks settings that a program made. Parse has checked the settings of a file.
func (s *Server) Check() error {
	values := s.Values()
	for _, path := range slices.Sorted(maps.Keys(values)) {
		if err := new(Server).put(path, values[path]); err != nil {
			return err
		}
	}
	return s.meaning()
}

// messages are the problems without their places.
func (r *report) messages() error {
	var errs []error
	for i := range r.problems {
		errs = append(errs, errors.New(r.problems[i].Message))
	}
	return errors.Join(errs...)
}

// scalar is a value as it would be written without quotes.
func scalar(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// Values are the fields that are set, by their paths.
func (s *Server) Values() map[string][]string {
	values, seen := make(map[string][]string), make(map[*field[Server]]bool)
	serverFields.walk("", func(path string, f *field[Server]) {
		if shown := f.value.show(s); shown != nil && !seen[f] {
			seen[f], values[path] = true, shown
		}
	})
	return values
}

// stated matches a default that is one value.
var stated = regexp.MustCompile("^`([^`]*)`$")

// Complete sets the fields that are not set to their defaults.
func (s *Server) Complete() {
	serverFields.walk("", func(_ string, f *field[Server]) {
		if found := stated.FindStringSubmatch(f.unset); found != nil && f.value.show(s) == nil {
			f.value.read(&decoder{report: &report{}}, at(-1, ""), scalar(found[1]), s)
		}
	})
}

// walk calls each with the fields of a mapping and of the mappings in it. A mapping that can be its first field alone
// has that field under its own path too.
func (m *mapping[T]) walk(prefix string, each func(path string, f *field[T])) {
	for i := range m.fields {
		f := &m.fields[i]
		inner := f.value.inner
		if inner == nil {
			each(prefix+f.word, f)
			continue
		}
		if f.value.headed {
			each(prefix+f.word, &inner.fields[0])
		}
		inner.walk(prefix+f.word+".", each)
	}
}

// find is the field at a path; nil if no field has this path.
func (m *mapping[T]) find(path string) (found *field[T]) {
	m.walk("", func(at string, f *field[T]) {
		if at == path {
			found = f
		}
	})
	return found
}

var link = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

// plainText is Markdown without links and code marks.
func plainText(text string) string {
	return strings.ReplaceAll(link.ReplaceAllString(text, "$1"), "`", "")
}
