package accesslog

import (
	"errors"
	"net/textproto"
	"slices"
	"strings"
)

// cloudFrontFields are the columns that have a meaning here. CloudFront writes the time of the end, and the duration.
// https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/standard-logs-reference.html
var cloudFrontFields = map[string]variable{
	"date":            {field: end}, // with the time, which is the next column
	"timestamp(ms)":   {field: end, rank: 1},
	"c-ip":            {field: client},
	"cs-method":       {field: method},
	"cs(Host)":        {field: host}, // of the distribution
	"x-host-header":   {field: host, rank: 1},
	"cs-uri-stem":     {field: path},
	"cs-uri-query":    {field: query},
	"sc-status":       {field: status},
	"sc-bytes":        {field: size},
	"time-taken":      {field: took},
	"cs(User-Agent)":  {field: agent, header: "User-Agent"},
	"x-forwarded-for": {field: header, header: "X-Forwarded-For"},
}

var errColumns = errors.New("the header before the line has no time")

const cloudFrontHeader = "#Fields:"

// cloudFront reads the columns that the header of the file names. Values are URL-encoded.
func cloudFront(sample []string) (format, bool) {
	at := slices.IndexFunc(sample, func(line string) bool { return strings.HasPrefix(line, cloudFrontHeader) })
	if at < 0 {
		return format{}, false
	}
	columns, err := cloudFrontColumns(sample[at])
	if err != nil {
		return format{}, false
	}
	read := func(line string, d *draft) error {
		if strings.HasPrefix(line, "#") {
			if !strings.HasPrefix(line, cloudFrontHeader) {
				return errNoRequest
			}
			// Files that were joined each have a header, and fields were added over the years.
			if columns, err = cloudFrontColumns(line); err != nil {
				return err
			}
			return errNoRequest
		}
		if columns == nil {
			return errColumns
		}
		return columns.read(line, d)
	}
	return format{name: "cloudfront", timeIs: columns.timeIs(End), read: read}, true
}

func cloudFrontColumns(line string) (*template, error) {
	names := strings.Fields(line[len(cloudFrontHeader):])
	var pieces []piece
	dated := false
	for i, name := range names {
		v := cloudFrontFields[name]
		if inside, found := strings.CutPrefix(name, "cs("); found && v.field == skip {
			v = variable{field: header, header: textproto.CanonicalMIMEHeaderKey(strings.TrimSuffix(inside, ")"))}
		}
		if name == "time" && dated {
			continue
		}
		dated = name == "date" && i+1 < len(names) && names[i+1] == "time"
		pieces = append(pieces, piece{v, name, "\t"})
	}
	if len(pieces) > 0 {
		pieces[len(pieces)-1].literal = ""
	}
	t, err := newTemplate("", pieces, percent)
	if err != nil {
		return nil, errColumns
	}
	for i := range t.tokens {
		t.tokens[i].twice = pieces[i].label == "date"
	}
	return t, nil
}
