package accesslog

import (
	"errors"
	"fmt"
	"net/textproto"
	"strings"
)

// nginxVariables are those that have a meaning here. nginx writes the line when the request has ended.
// https://nginx.org/en/docs/varindex.html
var nginxVariables = map[string]variable{
	"remote_addr":        {field: client, rank: 1},
	"realip_remote_addr": {field: client},
	"binary_remote_addr": {field: skip},
	"remote_user":        {field: user},
	"time_local":         {field: end},
	"time_iso8601":       {field: end},
	"msec":               {field: end, rank: 1},
	"request":            {field: request},
	"request_method":     {field: method},
	"request_uri":        {field: target},
	"uri_and_args":       {field: target},
	"uri":                {field: path},
	"document_uri":       {field: path},
	"args":               {field: query},
	"query_string":       {field: query},
	"host":               {field: host, rank: 2},
	"http_host":          {field: host, rank: 1},
	"server_name":        {field: host},
	"status":             {field: status},
	"bytes_sent":         {field: size},
	"body_bytes_sent":    {field: size, rank: 1},
	"request_time":       {field: took},
	"limit_req_status":   {field: header, header: "Limit-Req-Status"}, // of no request: what limits did
	"limit_conn_status":  {field: header, header: "Limit-Conn-Status"},
	"http_user_agent":    {field: agent, header: "User-Agent"},
}

func nginxVariable(name string) variable {
	if v, known := nginxVariables[name]; known {
		return v
	}
	if name, found := strings.CutPrefix(name, "http_"); found {
		name = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
		return variable{field: header, header: name, list: name == "X-Forwarded-For"}
	}
	return variable{list: strings.HasPrefix(name, "upstream_")}
}

// nginxFormat compiles the format of a log_format directive: the directive, its pieces in quotes, or the format alone.
func nginxFormat(text string) (*template, error) {
	text = strings.TrimSuffix(strings.TrimSpace(text), ";")
	directive := false
	if rest, found := strings.CutPrefix(text, "log_format"); found {
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			return nil, errors.New("log_format has a name and a format")
		}
		_, text, _ = strings.Cut(rest, fields[0])
		directive = true
	}
	text, esc, err := nginxEscape(strings.TrimSpace(text))
	if err != nil {
		return nil, err
	}
	if directive || strings.HasPrefix(text, "'") || strings.HasPrefix(text, `"`) {
		joined, err := nginxPieces(text)
		if err == nil {
			if t, err := patternTemplate(joined, nginxVariable, esc); err == nil || text[0] != '"' {
				return t, err
			}
		}
		if err != nil && (directive || text[0] == '\'') {
			return nil, err
		}
	}
	return patternTemplate(text, nginxVariable, esc)
}

func nginxEscape(text string) (rest string, esc escape, err error) {
	rest, found := strings.CutPrefix(text, "escape=")
	if !found {
		return text, backslash, nil
	}
	kind, rest, _ := strings.Cut(rest, " ")
	switch kind {
	case "default", "json":
		return strings.TrimSpace(rest), backslash, nil
	case "none":
		return strings.TrimSpace(rest), noEscape, nil
	}
	return "", escape{}, fmt.Errorf("escape=%s: allowed are default, json and none", kind)
}

// nginxPieces joins 'a' "b" c, as nginx does. Within quotes, \' \" \\ \t \r and \n are escapes.
func nginxPieces(text string) (joined string, err error) {
	var out strings.Builder
	for text != "" {
		quote := text[0]
		if quote != '\'' && quote != '"' {
			word := text
			if at := strings.IndexAny(text, " \t\r\n"); at >= 0 {
				word = text[:at]
			}
			out.WriteString(word)
			text = strings.TrimLeft(text[len(word):], " \t\r\n")
			continue
		}
		i := 1
		for ; i < len(text) && text[i] != quote; i++ {
			if text[i] == '\\' && i+1 < len(text) {
				if at := strings.IndexByte(`'"\trn`, text[i+1]); at >= 0 {
					out.WriteByte("'\"\\\t\r\n"[at])
					i++
					continue
				}
			}
			out.WriteByte(text[i])
		}
		if i == len(text) {
			return "", fmt.Errorf("a quote %c is not closed", quote)
		}
		after := text[i+1:]
		text = strings.TrimLeft(after, " \t\r\n")
		if text != "" && text == after {
			return "", fmt.Errorf("a space is missing after a closing quote %c", quote)
		}
	}
	return out.String(), nil
}
