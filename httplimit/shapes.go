package httplimit

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/mcp"
	"github.com/weirproject/weir/internal/wording"
	"github.com/weirproject/weir/rules"
)

// refusedBy is what a refusal says of the limit, and a sentence about it, by language; "" if the rule has a message of
// its own.
func (c *call) refusedBy(rule *rules.Rule, v *gate.Verdict) (data mcp.Data, limited func(language string) string) {
	limited = func(string) string { return "" }
	if rule != nil {
		data.Rule = rule.Name()
	}
	if v == nil || v.Outcome != gate.Refused {
		return data, limited
	}
	var limit *weir.Limit
	if worst, ok := v.Worst(); ok && !worst.Ban && (rule == nil || rule.Response().Fields != "none") {
		remaining := worst.Decision.Remaining
		limit = worst.Claim.Limit
		data.Limit, data.Remaining = limit.String(), &remaining
		if rule != nil {
			data.Unit = rule.Unit().String()
		}
	}
	if _, _, own := wording.Own(v, &c.view, nil); !own && rule != nil {
		name, unit := rule.DisplayName(), rule.Unit()
		limited = func(language string) string { return wording.Limited(language, name, limit, unit) }
	}
	return data, limited
}

// A modelError is the body of an error of an API of language models.
type modelError func(r *Refusal, text string, data mcp.Data) any

// modelErrors are by the shape of a rule's response. A member limit, which the APIs do not have, tells a program what
// the text tells a person.
var modelErrors = map[string]modelError{
	"openai": func(r *Refusal, text string, data mcp.Data) any {
		kind, code := "invalid_request_error", any(nil)
		switch {
		case r.Exceeded:
			kind, code = "tokens", "rate_limit_exceeded"
		case r.Status >= http.StatusInternalServerError:
			kind = "server_error"
		}
		return map[string]any{"error": map[string]any{"message": text, "type": kind, "param": nil, "code": code,
			"limit": data}}
	},
	"anthropic": func(r *Refusal, text string, data mcp.Data) any {
		kind := "invalid_request_error"
		switch {
		case r.Exceeded:
			kind = "rate_limit_error"
		case r.Status == http.StatusForbidden:
			kind = "permission_error"
		case r.Status >= http.StatusInternalServerError:
			kind = "api_error"
		}
		return map[string]any{"type": "error", "request_id": r.RequestID,
			"error": map[string]any{"type": kind, "message": text, "limit": data}}
	},
	"gemini": func(r *Refusal, text string, data mcp.Data) any {
		status, details := "INVALID_ARGUMENT", []any{}
		switch {
		case r.Exceeded:
			status = "RESOURCE_EXHAUSTED"
		case r.Status == http.StatusForbidden:
			status = "PERMISSION_DENIED"
		case r.Status >= http.StatusInternalServerError:
			status = "UNAVAILABLE"
		}
		if data.RetryAfter > 0 {
			details = append(details, map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo",
				"retryDelay": strconv.FormatInt(data.RetryAfter, 10) + "s"})
		}
		return map[string]any{"error": map[string]any{"code": r.Status, "message": text, "status": status,
			"details": details, "limit": data}}
	},
	"ollama": func(_ *Refusal, text string, data mcp.Data) any {
		return map[string]any{"error": text, "limit": data}
	},
}

// answerModel is the body of a refusal as an error of the API that the rule's response names.
func (c *call) answerModel(shaped modelError, rule *rules.Rule, v *gate.Verdict) Body {
	data, limited := c.refusedBy(rule, v)
	return func(_ *http.Request, refusal *Refusal) (string, []byte) {
		data.RetryAfter = max(0, refusal.RetryAfter)
		text := refusal.Message + limited(refusal.Language)
		body, _ := json.Marshal(shaped(refusal, text, data))
		return "application/json", body
	}
}

// add asks for the usage in the body of a request that passes.
func (c *call) add(v *gate.Verdict) {
	for i := range v.Len() {
		check := v.At(i)
		if check.Rule == nil || !check.Rule.AsksUsage() || check.Granted == 0 {
			continue
		}
		if text := check.Rule.Asking(c.attributes.JSON()); text != nil {
			c.request = c.attributes.withBody(text)
			return
		}
	}
}
