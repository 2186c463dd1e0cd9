package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/rules"
)

// checkKeys refuses rules whose key the front ends cannot fill. At the gateway a rule by user without on_missing would
// count all clients together where no proxy states users: three requests of a stranger would shut out everybody. Only
// the gateway reads bodies.
func (v *server) checkKeys(setup *engine.Setup, set *rules.Set) error {
	gateway := v.flags.gateway.listener != nil
	trusts := len(setup.Trusted) > 0 || slices.Contains(setup.TrustedProxies, "unix")
	users := v.flags.userHeader != "" && trusts
	for _, rule := range set.Rules() {
		if !rule.Enabled() {
			continue
		}
		if !gateway && readsBody(rule) {
			return fmt.Errorf("rule %s counts by %s, and only the gateway reads bodies: give --upstream or routes",
				rule.Name(), strings.Join(rule.Components(), ", "))
		}
		for _, component := range rule.Unprovided() {
			if gateway && !isOfBody(component) && (component != "user" || !users) {
				return errors.New(unknownAtGateway(rule, component))
			}
		}
	}
	return nil
}

// unknownAtGateway says what to do about a component that the gateway does not know.
func unknownAtGateway(rule *rules.Rule, component string) string {
	remedy := "key by what requests have (header.NAME, cookie.NAME, body.NAME)"
	if component == "user" {
		remedy = "name the header in which --trusted-proxies state it in --user-header"
	}
	return fmt.Sprintf("rule %s counts by %s, which the gateway does not know, so that all clients would count "+
		"together: %s, or say on_missing: skip, deny or anonymous in the rule", rule.Name(), component, remedy)
}

func isOfBody(component string) bool { return strings.HasPrefix(component, "body.") }

func readsBody(rule *rules.Rule) bool { return slices.ContainsFunc(rule.Components(), isOfBody) }

// keysNote says what weir serve needs for the keys of a set; "" if it needs nothing.
func keysNote(set *rules.Set) string {
	var texts []string
	for _, rule := range set.Rules() {
		if !rule.Enabled() {
			continue
		}
		for _, component := range rule.Unprovided() {
			switch {
			case isOfBody(component):
			case component == "user":
				texts = append(texts, "rule "+rule.Name()+" counts by user: with a gateway, weir serve starts only "+
					"with --user-header and --trusted-proxies, or with on_missing in the rule")
			default:
				texts = append(texts, "rule "+rule.Name()+" counts by "+component+", which a gateway does not know: "+
					"with one, weir serve starts only with on_missing in the rule")
			}
		}
		if readsBody(rule) {
			texts = append(texts, "rule "+rule.Name()+" counts by a field of the body: weir serve starts only with a "+
				"gateway")
		}
	}
	if more := len(texts) - maxKeysNoted; more > 0 {
		texts = append(texts[:maxKeysNoted], fmt.Sprintf("likewise for %d more", more))
	}
	return strings.Join(texts, "; ")
}

// maxKeysNoted is how many rules a note names.
const maxKeysNoted = 8
