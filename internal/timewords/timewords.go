// Package timewords has durations in words, as people read them in refusals.
package timewords

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirproject/weir"
)

// Words are the words of a language for durations and levels.
type Words struct {
	units    []unit
	calendar [6]string         // of a minute to a year
	levels   map[string]string // by those in English
	gap      string            // between a number and its unit
}

// A unit has the words for one and for several.
type unit struct {
	length    time.Duration
	one, many string
}

var lengths = []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second, time.Millisecond,
	time.Microsecond}

func unitsOf(words ...string) (units []unit) {
	for i, length := range lengths {
		units = append(units, unit{length, words[2*i], words[2*i+1]})
	}
	return units
}

// Languages other than English and Chinese have the symbols of units, which all languages share. Chinese has no gaps,
// so that a duration stands in a sentence without any.
var (
	english = &Words{units: unitsOf("day", "days", "hour", "hours", "minute", "minutes", "second", "seconds",
		"millisecond", "milliseconds", "microsecond", "microseconds"),
		calendar: [...]string{"1 minute", "1 hour", "1 day", "1 week", "1 month", "1 year"}, gap: " "}
	chinese = &Words{units: unitsOf("天", "天", "小时", "小时", "分钟", "分钟", "秒", "秒", "毫秒", "毫秒", "微秒",
		"微秒"), calendar: [...]string{"1分钟", "1小时", "1天", "1周", "1个月", "1年"},
		levels: map[string]string{"GLOBAL": "全局", "SERVICE": "服务", "INTERFACE": "接口", "USER": "用户",
			"KEY": "标识"}}
	symbols = &Words{units: unitsOf("d", "d", "h", "h", "min", "min", "s", "s", "ms", "ms", "µs", "µs"),
		calendar: [...]string{"1 min", "1 h", "1 d", "7 d", "1 mo", "1 y"}, gap: " "}
)

// Of are the words of a language by its tag; of an unknown one the symbols.
func Of(tag string) *Words {
	primary, _, _ := strings.Cut(strings.ToLower(tag), "-")
	switch primary {
	case "en":
		return english
	case "zh":
		return chinese
	}
	return symbols
}

// Level is the word for a level of a rule.
func (w *Words) Level(level string) string {
	if text := w.levels[level]; text != "" {
		return text
	}
	return level
}

// Duration is a duration in its two largest units, rounded up: 1 minute 30 seconds.
func (w *Words) Duration(d time.Duration) string {
	for i, u := range w.units {
		if d < u.length {
			continue
		}
		if i+1 == len(w.units) {
			return w.count(&u, d)
		}
		next := w.units[i+1]
		d = (d + next.length - 1) / next.length * next.length
		text := w.count(&u, d/u.length)
		if rest := d % u.length / next.length; rest > 0 {
			text += w.gap + w.count(&next, rest)
		}
		return text
	}
	return w.count(&w.units[len(w.units)-1], d)
}

func (w *Words) count(u *unit, n time.Duration) string {
	if n == 1 {
		return fmt.Sprint(int64(n), w.gap+u.one)
	}
	return fmt.Sprint(int64(n), w.gap+u.many)
}

// Window is the time that a limit takes to grant its units.
func (w *Words) Window(limit *weir.Limit) string {
	if calendar, ok := limit.Spec().(weir.Calendar); ok {
		return w.calendar[calendar.Unit-weir.Minute]
	}
	return w.Duration(time.Duration(limit.Period()) * time.Microsecond)
}

// Wait is a wait in whole seconds, rounded up so that it is never too short; Retry-After is the same number.
func (w *Words) Wait(d time.Duration) string {
	return w.Duration(max(1, (d+time.Second-1)/time.Second) * time.Second)
}

// Plain is a duration in words for people who run weir: 24 h, 7 days, 90 s.
func Plain(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		word   string
		from   int64
	}{{24 * time.Hour, "days", 2}, {time.Hour, "h", 1}, {time.Minute, "min", 1}, {time.Second, "s", 1}} {
		if n := int64(d / unit.length); n >= unit.from && d%unit.length == 0 {
			return fmt.Sprint(n, " ", unit.word)
		}
	}
	return d.String()
}
