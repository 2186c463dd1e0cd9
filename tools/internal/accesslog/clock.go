package accesslog

import (
	"strconv"
	"strings"
	"time"
)

// A clock reads times. It remembers the last second that it read, because most lines have the second of the line
// before.
type clock struct {
	zone *time.Location // of times that do not say theirs
	unit time.Duration  // the finest resolution of the times that were read

	second, offset string
	at             int64
}

// read is the time in microseconds since 1970. These forms are read, each with or without a fraction of a second:
//
//	10/Oct/2000:13:55:36 -0700   the zone may be missing
//	2000-10-10T13:55:36-07:00    or Z, or a space or tab for the T
//	971211336                    Unix time: seconds, milliseconds, microseconds or nanoseconds, by its size
func (c *clock) read(text string) (micros int64, ok bool) {
	switch {
	case len(text) >= 20 && text[2] == '/':
		return c.split(text, 20)
	case len(text) >= 19 && text[4] == '-':
		return c.split(text, 19)
	}
	return c.unix(text)
}

// split takes the time apart: the date to the second, the fraction, the zone.
func (c *clock) split(text string, seconds int) (micros int64, ok bool) {
	second, offset := text[:seconds], text[seconds:]
	if offset != "" && (offset[0] == '.' || offset[0] == ',') {
		digits := 1
		for digits < len(offset) && offset[digits]-'0' <= 9 {
			digits++
		}
		micros = fraction(offset[1:digits])
		c.sees(digits - 1)
		offset = offset[digits:]
	} else {
		c.sees(0)
	}
	if second == c.second && offset == c.offset {
		return c.at + micros, true
	}
	at, ok := c.date(second, offset)
	if !ok {
		return 0, false
	}
	c.second, c.offset, c.at = second, offset, at
	return at + micros, true
}

// fraction is in microseconds; further digits are cut off.
func fraction(digits string) (micros int64) {
	for i := range 6 {
		micros *= 10
		if i < len(digits) {
			micros += int64(digits[i] - '0')
		}
	}
	return micros
}

// sees takes the number of digits after the seconds.
func (c *clock) sees(digits int) {
	unit := time.Microsecond
	switch {
	case digits == 0:
		unit = time.Second
	case digits <= 3:
		unit = time.Millisecond
	}
	if c.unit == 0 || unit < c.unit {
		c.unit = unit
	}
}

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

// date is the second in microseconds since 1970.
func (c *clock) date(second, offset string) (micros int64, ok bool) {
	var year, month, day int
	at := len(second) - 8 // of the hour
	if second[2] == '/' {
		index := strings.Index(months, second[3:6])
		if index%3 != 0 || second[6] != '/' || second[11] != ':' {
			return 0, false
		}
		year, month, day = number(second[7:11]), index/3+1, number(second[:2])
	} else {
		if second[7] != '-' || strings.IndexByte("Tt \t", second[10]) < 0 {
			return 0, false
		}
		year, month, day = number(second[:4]), number(second[5:7]), number(second[8:10])
	}
	hour, minute, secs := number(second[at:at+2]), number(second[at+3:at+5]), number(second[at+6:])
	if second[at+2] != ':' || second[at+5] != ':' || uint(hour) > 23 || uint(minute) > 59 || uint(secs) > 60 {
		return 0, false
	}
	if year < 1970 || month < 1 || month > 12 || day < 1 {
		return 0, false
	}
	zone, ahead := time.UTC, 0
	if offset == "" && c.zone != nil {
		zone = c.zone // an hour that is there twice, at the end of summer time, is the first one
	} else if ahead, ok = zoneOffset(offset); !ok {
		return 0, false
	}
	t := time.Date(year, time.Month(month), day, hour, minute, 0, 0, zone)
	return (t.Unix() + int64(secs-ahead)) * 1e6, t.Day() == day
}

// zoneOffset is in seconds east of UTC, of Z, +02:00, +0200 or +02, and "", which is UTC.
func zoneOffset(text string) (seconds int, ok bool) {
	text = strings.TrimPrefix(text, " ")
	if text == "" || text == "Z" || text == "z" || text == "UTC" {
		return 0, true
	}
	digits := strings.Replace(text[1:], ":", "", 1)
	if len(digits) == 2 {
		digits += "00"
	}
	if len(digits) != 4 || text[0] != '+' && text[0] != '-' {
		return 0, false
	}
	hours, minutes := number(digits[:2]), number(digits[2:])
	if hours < 0 || hours > 14 || minutes < 0 || minutes > 59 {
		return 0, false
	}
	seconds = hours*3600 + minutes*60
	if text[0] == '-' {
		seconds = -seconds
	}
	return seconds, true
}

// number is -1 if the text has anything but digits.
func number(text string) (n int) {
	for i := range len(text) {
		if text[i]-'0' > 9 {
			return -1
		}
		n = n*10 + int(text[i]-'0')
	}
	return n
}

// unix reads a Unix time. Today's has 10 digits in seconds, 13 in milliseconds, 16 in microseconds, 19 in nanoseconds.
func (c *clock) unix(text string) (micros int64, ok bool) {
	if strings.ContainsAny(text, "eE") {
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, false
		}
		text = strconv.FormatFloat(value, 'f', -1, 64)
	}
	whole, digits, _ := strings.Cut(text, ".")
	unit, finest := time.Second, len(digits)
	switch {
	case len(whole) > 16:
		unit, finest = time.Nanosecond, 9
	case len(whole) > 13:
		unit, finest = time.Microsecond, 6
	case len(whole) > 10:
		unit, finest = time.Millisecond, 3+len(digits)
	}
	nanos, ok := decimal(text, int64(unit))
	if ok {
		c.sees(finest)
	}
	return nanos / 1000, ok
}
