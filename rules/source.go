package rules

// A source is the origin of a component's value.
type source uint8

const (
	sourceIP source = iota
	sourceASN
	sourceDescriptorKeys // of conditions only
	sourceCountry
	sourceMethod
	sourceRoute
	sourceEndpoint
	sourceHost
	sourceUser
	sourceService
	sourceHeader
	sourceQuery
	sourceCookie
	sourceBody
	sourceJSON
	sourceDescriptor
	sourceEntry
	sourceMCPMethod
	sourceMCPTool
	sourcePath
	sourceConstant

	lastTyped = sourceDescriptorKeys // up to here conditions are not on texts
)

// A sourceRow says which needs and properties a source has. No column may be empty: TestKeySourcesAreComplete.
type sourceRow struct {
	word     string // as rules write it, without the name
	name     string // NAME or TEXT if a name follows, else alone
	needs    need
	doubtful string // the kind of Attributes that may have several values by one name; single: no request has
	about    string // the value, for docs/reference/keys.md
}

const (
	alone  = "-"
	single = "-"
)

// A need is a piece of data that a front end must have to know a value. It is the first result of Unprovided.
type need string

const (
	needsNothing    need = "nothing"
	needsHTTP       need = "http"
	needsCountry    need = "country"
	needsASN        need = "asn"
	needsUser       need = "user"
	needsRoute      need = "route"
	needsDescriptor need = "descriptor"
	needsBody       need = "body"
	noKey           need = "condition"
)

// sources are the sources of keys. docs/reference/keys.md has this table: go test ./rules -update.
var sources = [...]sourceRow{
	sourceIP: {"client.ip", alone, needsNothing, single,
		"the client's address; by network with `client.ip v4/24 v6/48` (default `v4/32 v6/64`)"},
	sourceCountry: {"client.country", alone, needsCountry, single, "the client's country"},
	sourceASN:     {"client.asn", alone, needsASN, single, "the client's autonomous system"},
	sourceHeader:  {"header", "NAME", needsNothing, "header", "a header, or metadata of gRPC"},
	sourceQuery:   {"query", "NAME", needsHTTP, "query", "a parameter of the query"},
	sourceCookie:  {"cookie", "NAME", needsHTTP, "cookie", "a cookie"},
	sourceBody: {"body", "NAME", needsBody, "body",
		"[a field of a form or a JSON object](keys.md#fields-of-bodies)"},
	sourceJSON: {"json", "PATH", needsBody, "json",
		"[a value of a JSON body](keys.md#json-bodies) by its path, such as `json.model`"},
	sourcePath:       {"path", "NAME", needsNothing, single, "the segment `{NAME}` of the path, without escapes"},
	sourceDescriptor: {"descriptor", "NAME", needsDescriptor, single, "a descriptor of the call"},
	sourceEntry: {"entry", "NUMBER", needsDescriptor, single, "the entry of this number of the descriptor, from 1, " +
		"as `key=value`; from [front ends that keep their order](matching.md#descriptors)"},
	sourceConstant: {"constant", "TEXT", needsNothing, single, "the text"},
	sourceMCPMethod: {"mcp.method", alone, needsBody, single,
		"the method of a [message of the Model Context Protocol](../howto/agents.md), such as `tools/call`"},
	sourceMCPTool: {"mcp.tool", alone, needsBody, single, "the tool that such a message calls"},
	sourceMethod:  {"method", alone, needsNothing, single, "the method, in capitals"},
	sourceRoute:   {"route", alone, needsRoute, single, "the pattern that a router chose"},
	sourceEndpoint: {"endpoint", alone, needsNothing, single, "the route or, without one, the path: of " +
		"[1,000 paths](keys.md#paths-without-routes), and all others together as `(other)`"},
	sourceHost:           {"host", alone, needsNothing, single, "the host, in lower case"},
	sourceUser:           {"user", alone, needsUser, single, "the authenticated user"},
	sourceService:        {"service", alone, needsNothing, single, "the service"},
	sourceDescriptorKeys: {"descriptor", alone, noKey, single, "the entries of the descriptor"},
}

// String is the name of a source in errors.
func (s source) String() string { return sources[s].word }

// written is the source as rules write it.
func (r *sourceRow) written() string {
	if r.name == alone {
		return r.word
	}
	return r.word + "." + r.name
}

// sourceWords are the allowed sources, for error texts.
func sourceWords() (words []string) {
	for i := range sources {
		if sources[i].needs != noKey {
			words = append(words, sources[i].written())
		}
	}
	return words
}

// sourceOf finds the source of a word with or without a name after it.
func sourceOf(word string, named bool) (s source, ok bool) {
	for i := range sources {
		if r := &sources[i]; r.word == word && (r.name != alone) == named && r.needs != noKey {
			return source(i), true
		}
	}
	return 0, false
}

// several reports whether a request may have several values of the source by one name.
func (s source) several() bool { return sources[s].doubtful != single }

// geo is what must be known of the client's address.
func (s source) geo() geo {
	switch sources[s].needs {
	case needsCountry:
		return geoCountry
	case needsASN:
		return geoASN
	}
	return 0
}
