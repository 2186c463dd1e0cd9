package simulate

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/rules"
)

// maxRuns bounds what is compared.
const maxRuns = 32

// A Variant is a Config of a comparison, and what it has other than the others.
type Variant struct {
	Label string
	*Config
}

// settings are what can be compared: the usual values, and how one is set.
var settings = map[string]struct {
	values  string
	allowed string
	set     func(c *Config, value string) bool
}{
	"on_store_error": {"local,allow,deny", "local, allow, deny", func(c *Config, value string) bool {
		c.OnStoreError = rules.StoreError(value)
		return slices.Contains([]rules.StoreError{rules.Local, rules.AllowAll, rules.RefuseAll}, c.OnStoreError)
	}},
	"nodes": {"", "1 to 1000000", func(c *Config, value string) bool {
		return whole(&c.Nodes, 1, maxNodes)(value)
	}},
	"running": {"1,2,4,8", "1 to 64", func(c *Config, value string) bool {
		return whole(&c.Running, 1, maxRunning)(value)
	}},
	"prefetch": {"0,5,10,25,50", "0 to " + strconv.Itoa(bounds.Lease) + " percent", func(c *Config, value string) bool {
		return whole(&c.Prefetch, 0, bounds.Lease)(value)
	}},
	"store_timeout": {"10ms,25ms,50ms,100ms,250ms", "1ms to 1m", func(c *Config, value string) bool {
		return duration(&c.Timeout, time.Millisecond, maxLatency)(value)
	}},
	"without": {"none," + strings.Join(layers.Names, ","), "none, " + strings.Join(layers.Names, ", "),
		func(c *Config, value string) bool {
			if c.Without = []string{value}; value == "none" {
				c.Without = nil
			}
			return value == "none" || slices.Contains(layers.Names, value)
		}},
}

// Compare returns the Configs of a comparison: for each text such as "on_store_error" or "nodes=1,2,4", each value with
// each of the others.
func (c *Config) Compare(texts []string) ([]Variant, error) {
	list := []Variant{{"", c}}
	for _, text := range texts {
		name, values, given := strings.Cut(text, "=")
		setting, ok := settings[name]
		if !given {
			values = setting.values
		}
		if name == "nodes" && !given {
			values = strings.Join([]string{"1", strconv.Itoa(c.Running), strconv.Itoa(2 * c.Running)}, ",")
		}
		if !ok {
			return nil, wrong("compare", text, "%s, each perhaps with =VALUE,VALUE",
				"nodes, on_store_error, prefetch, running, store_timeout, without")
		}
		var next []Variant
		for _, v := range list {
			for value := range strings.SplitSeq(values, ",") {
				one := *v.Config
				if !setting.set(&one, value) {
					return nil, wrong("compare: "+name, value, "%s", setting.allowed)
				}
				next = append(next, Variant{strings.TrimSpace(v.Label + " " + name + "=" + value), &one})
			}
		}
		if list = next; len(list) > maxRuns {
			return nil, wrong("compare", strings.Join(texts, " "), "up to %d runs", maxRuns)
		}
	}
	return list, nil
}
