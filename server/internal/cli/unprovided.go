package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirproject/weir/rules"
)

// checkKeys refuses rules with a key that the front ends cannot fill. At the gateway a rule by user without on_missing
// would count all clients together where no proxy states users: three requests of a stranger would shut out everybody.
// The gateway reads bodies, callers of the HTTP API pass them, and so does Envoy to ext_authz.
func (v *server) checkKeys(set *rules.Set) error {
	gateway := v.gateway.open()
	known := map[string]bool{"body": gateway || v.http.open() || v.grpc.open(), "user": v.engine.WithoutUsers == "",
		"route": !gateway, "descriptor": !gateway}
	for _, rule := range set.Rules() {
		for need, component := range rule.Unprovided() {
			if rule.Enabled() && !known[need] {
				return errors.New(unknownKey(rule, need, component))
			}
		}
	}
	return nil
}

// withoutUsers says why the gateway knows no users; "" if it does, or without a gateway.
func (v *server) withoutUsers() string {
	trusts := len(v.engine.TrustedProxies) > 0
	if !v.gateway.open() || v.engine.UserHeader != "" && trusts {
		return ""
	}
	return "the gateway knows no users: " + nameUsers
}

const nameUsers = "name the header in which --trusted-proxies state it in server.user_header"

// unknownKey says what to do about a component that the front ends do not know.
func unknownKey(rule *rules.Rule, need, component string) string {
	remedy := "key by what requests have (header.NAME, cookie.NAME, body.NAME)"
	switch need {
	case "body":
		return fmt.Sprintf("rule %s counts by %s, and Redis clients do not know bodies: give --upstream, routes, "+
			"--http or --grpc", rule.Name(), component)
	case "user":
		remedy = nameUsers
	}
	return fmt.Sprintf("rule %s counts by %s, which the gateway does not know, so that all clients would count "+
		"together: %s, or say on_missing: skip, deny or anonymous in the rule", rule.Name(), component, remedy)
}

// keysNote says what weir serve needs for the keys of a set; "" without needs.
func keysNote(set *rules.Set) string {
	var texts []string
	for _, rule := range set.Rules() {
		reads := false // of the values of its body one is enough
		for need, component := range rule.Unprovided() {
			if rule.Enabled() && !(reads && need == "body") {
				reads = reads || need == "body"
				texts = append(texts, "rule "+rule.Name()+" counts by "+component+startsWith(need))
			}
		}
	}
	if more := len(texts) - maxKeysNoted; more > 0 {
		texts = append(texts[:maxKeysNoted], fmt.Sprintf("likewise for %d more", more))
	}
	return strings.Join(texts, "; ")
}

// startsWith says what weir serve starts with if a rule counts by such a component.
func startsWith(need string) string {
	switch need {
	case "body":
		return ": the gateway and Envoy's ext_proc read bodies, and callers of the HTTP API pass them; front ends " +
			"without a body refuse requests that need it, and their costs have the default"
	case "user":
		return ": with a gateway, weir serve starts only with server.user_header and --trusted-proxies, or with " +
			"on_missing in the rule"
	}
	return ", which a gateway does not know: with one, weir serve starts only with on_missing in the rule"
}

// maxKeysNoted is how many rules a note names.
const maxKeysNoted = 8
