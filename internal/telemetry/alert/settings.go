// Package alert watches a server's counters, and raises an alert when one of its conditions holds: once over all nodes
// that share a Redis, and resolved once. An alert goes to the log and to a webhook.
package alert

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Settings are the thresholds of alerts; 0 turns an alert off.
type Settings struct {
	RejectShare float64       // refused share of a rule's requests in Window
	NewTopKey   float64       // share of a rule's refusals that one key has, which had no such share in the last hour
	NearLimit   float64       // used share of a limit that all requests of a rule share
	StoreSlow   time.Duration // 99th percentile of store calls in Window
	Degraded    bool          // decisions without the store
	ClockStep   bool          // the clock of Redis stepped
	SourceBad   bool          // a rule source cannot be read, or has mistakes

	Window  time.Duration
	Minimum int64         // requests of a rule in Window, below which shares say nothing
	Resolve time.Duration // a condition must not hold for so long before its alert is resolved
}

// Defaults are the settings of "on".
func Defaults() Settings {
	return Settings{RejectShare: 0.1, NewTopKey: 0.5, NearLimit: 0.9, StoreSlow: 25 * time.Millisecond, Degraded: true,
		ClockStep: true, SourceBad: true, Window: time.Minute, Minimum: 100, Resolve: time.Minute}
}

// A SettingError is a mistake in the text of Parse.
type SettingError struct{ Name, Value, Allowed string }

// Error names the setting, the value, and what is allowed.
func (e *SettingError) Error() string {
	return fmt.Sprintf("%s is %.80q; allowed: %s", e.Name, e.Value, e.Allowed)
}

// Parse reads "on", "off", or settings that differ from the defaults, such as "reject_share=20%,store_slow=off".
func Parse(text string) (s Settings, err error) {
	if text == "off" {
		return s, nil
	}
	s = Defaults()
	if text == "on" {
		return s, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		if err := s.set(strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *Settings) set(name, value string) error {
	f := s.fields()
	var names []string
	for _, one := range f {
		if names = append(names, one.name); one.name != name {
			continue
		}
		if !one.read(value) {
			return &SettingError{name, value, one.allowed}
		}
		return nil
	}
	return &SettingError{"a setting", name, "on, off, or with commas NAME=VALUE of " + strings.Join(names, ", ")}
}

type field struct {
	name, allowed string
	read          func(text string) bool
}

// fields are the settings by the names of their alerts.
func (s *Settings) fields() []field {
	return []field{
		{"reject_share", percentages, percent(&s.RejectShare)},
		{"new_top_key", percentages, percent(&s.NewTopKey)},
		{"near_limit", percentages, percent(&s.NearLimit)},
		{"store_slow", "a time from 1ms to 10s, or off", orOff(between(&s.StoreSlow, time.Millisecond, 10*time.Second),
			func() { s.StoreSlow = 0 })},
		{"degraded", "on or off", onOff(&s.Degraded)},
		{"clock_step", "on or off", onOff(&s.ClockStep)},
		{"source_bad", "on or off", onOff(&s.SourceBad)},
		{"window", "a time from 10s to 10m", between(&s.Window, 10*time.Second, 10*time.Minute)},
		{"minimum", "a whole number from 1 to 1000000000", number(&s.Minimum)},
		{"resolve", "a time from 5s to 1h", between(&s.Resolve, 5*time.Second, time.Hour)},
	}
}

const percentages = "a percentage above 0% up to 100%, or off"

func percent(of *float64) func(string) bool {
	return orOff(func(text string) bool {
		digits, ok := strings.CutSuffix(text, "%")
		n, err := strconv.ParseFloat(digits, 64)
		*of = n / 100
		return ok && err == nil && n > 0 && n <= 100
	}, func() { *of = 0 })
}

func orOff(read func(string) bool, off func()) func(string) bool {
	return func(text string) bool {
		if text == "off" {
			off()
			return true
		}
		return read(text)
	}
}

func onOff(of *bool) func(string) bool {
	return func(text string) bool {
		*of = text == "on"
		return text == "on" || text == "off"
	}
}

func between(of *time.Duration, least, most time.Duration) func(string) bool {
	return func(text string) bool {
		d, err := time.ParseDuration(text)
		*of = d
		return err == nil && d >= least && d <= most
	}
}

func number(of *int64) func(string) bool {
	return func(text string) bool {
		n, err := strconv.ParseInt(text, 10, 64)
		*of = n
		return err == nil && n >= 1 && n <= 1_000_000_000
	}
}
