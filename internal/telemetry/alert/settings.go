// Package alert raises an alert when a rule refuses too much, over all nodes that share a Redis, or a store does not
// respond. An alert goes to the log and to a webhook, when it begins and when it has ended.
package alert

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Settings are the thresholds of alerts; 0 turns an alert off.
type Settings struct {
	RejectShare float64 // refused share of a rule's requests in Window
	Degraded    bool    // decisions without the store

	Window  time.Duration
	Minimum int64         // requests of a rule in Window, below which shares say nothing
	Resolve time.Duration // a condition must not hold for so long before its alert is resolved
}

// Defaults are the settings of "on".
func Defaults() Settings {
	return Settings{RejectShare: 0.1, Degraded: true, Window: time.Minute, Minimum: 100, Resolve: time.Minute}
}

// A SettingError is a mistake in the text of Parse.
type SettingError struct{ Name, Value, Allowed string }

// Error names the setting, the value, and the allowed values.
func (e *SettingError) Error() string {
	return fmt.Sprintf("%s is %.80q; allowed: %s", e.Name, e.Value, e.Allowed)
}

// Parse reads "on", "off", or settings that differ from the defaults, such as "reject_share=20%,degraded=off".
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
		{"degraded", "on or off", onOff(&s.Degraded)},
		{"window", "a time from 1m to 1h", between(&s.Window, time.Minute, time.Hour)},
		{"minimum", "a whole number from 1 to 1000000000", number(&s.Minimum)},
		{"resolve", "a time from 5s to 1h", between(&s.Resolve, 5*time.Second, time.Hour)},
	}
}

const percentages = "a percentage above 0% up to 100%, or off"

func percent(of *float64) func(string) bool {
	return func(text string) bool {
		if *of = 0; text == "off" {
			return true
		}
		digits, ok := strings.CutSuffix(text, "%")
		n, err := strconv.ParseFloat(digits, 64)
		*of = n / 100
		return ok && err == nil && n > 0 && n <= 100
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
