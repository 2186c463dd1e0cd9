// Package wording has the sentences that front ends send to people with a refusal: the rule's sentences, and weir's own
// in English and Chinese.
package wording

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/timewords"
	"github.com/weirproject/weir/rules"
)

// A Text makes a sentence in the language that the lines of Accept-Language prefer, and says which that is; "" is
// unknown.
type Text func(accept []string) (text, language string)

// Of is the text of a verdict that did not pass: the message of the rule that refuses, if it has one and if waiting
// helps, or else weir's own. The text must be made before the next Decide.
func Of(v *gate.Verdict, r *rules.Request) Text {
	switch {
	case v.Reason == gate.Repeated:
		return Repeated
	case v.Outcome == gate.Denied:
		return Denied
	case v.Outcome == gate.Refused:
		return func(accept []string) (text, language string) { return refused(v, r, accept) }
	}
	return Undecided
}

// Own is the message of the rule that refuses, in the language of the request; ok is false if it has no message.
func Own(v *gate.Verdict, r *rules.Request, accept []string) (text, language string, ok bool) {
	worst, decided := v.Worst()
	if v.Outcome != gate.Refused || v.Reason == gate.Repeated || !decided ||
		worst.Rule == nil || worst.Decision.RetryAfter == weir.Never {
		return "", "", false
	}
	values := rules.MessageValues{Limit: limitOf(v, &worst), RetryAfter: v.RetryAfter(), Service: r.Service,
		Route: r.Route}
	return worst.Rule.Message(&values, accept)
}

// OwnOf is Own in the language of the header Accept-Language that the request was described with, for callers who ask
// on behalf of it.
func OwnOf(v *gate.Verdict, r *rules.Request) (text, language string, ok bool) {
	var accept []string
	if v.Outcome == gate.Refused && r != nil && r.Attributes != nil {
		if line := r.Attributes.Header("Accept-Language"); line != "" {
			accept = append(accept, line)
		}
	}
	return Own(v, r, accept)
}

func refused(v *gate.Verdict, r *rules.Request, accept []string) (text, language string) {
	if text, language, ok := Own(v, r, accept); ok {
		return text, language
	}
	wait := weir.Never
	if _, ok := v.Worst(); ok {
		wait = v.RetryAfter()
	}
	return Exceeded(wait)(accept)
}

// limitOf is the limit that refuses. The claim of a ban has a limit that stands in no file: the first limit of
// its rule takes its place.
func limitOf(v *gate.Verdict, worst *gate.Check) *weir.Limit {
	if !worst.Ban {
		return worst.Claim.Limit
	}
	for i := range v.Len() {
		if c := v.At(i); c.Rule == worst.Rule && !c.Ban && !c.Aside {
			return c.Claim.Limit
		}
	}
	return worst.Rule.Limits()[0]
}

// Exceeded is the text of an exceeded limit, with the wait as in {retry_after} of a message.
func Exceeded(retryAfter time.Duration) Text {
	if retryAfter == weir.Never {
		return never
	}
	return func(accept []string) (text, language string) {
		language = Language(accept)
		wait := timewords.Of(language).Wait(retryAfter)
		return either(accept, "Too many requests: try again in "+wait+".", "请求过于频繁，请在"+wait+"后重试。")
	}
}

func never(accept []string) (text, language string) {
	return either(accept, "This request costs more than the limit ever grants: waiting does not help, request less.",
		"该请求的用量超过限额的上限，等待也无法通过，请减少用量。")
}

// Limited is a sentence that says what is limited, for a reader who sees no fields; a nil limit is not shown.
func Limited(language, rule string, limit *weir.Limit, unit rules.Unit) string {
	zh := language == "zh"
	switch {
	case limit == nil && zh:
		return "规则：" + rule + "。"
	case limit == nil:
		return " The rule is " + rule + "."
	}
	units := unit.Text(cmp.Or(limit.Refill(), limit.Capacity()))
	window := timewords.Of(language).Window(limit)
	switch {
	case limit.Leases() && zh:
		return "限额：同时 " + units + "（规则：" + rule + "）。"
	case limit.Leases():
		return " The limit is " + units + " at once (rule " + rule + ")."
	case zh:
		return "限额：每" + window + " " + units + "（规则：" + rule + "）。"
	}
	return " The limit is " + units + " in " + window + " (rule " + rule + ")."
}

// MissingKey is the text for a request without the key of its limit.
func MissingKey(accept []string) (text, language string) {
	return either(accept, "This request lacks the key that its limit requires.", "请求缺少限流所需的标识。")
}

// Denied is the text for a request that a list denies. It does not say why.
func Denied(accept []string) (text, language string) {
	return either(accept, "This request is not allowed.", "该请求不被允许。")
}

// Repeated is the text for a request that was granted before, by its id.
func Repeated(accept []string) (text, language string) {
	return either(accept, "This request was accepted before: it is not carried out twice.", "该请求已提交，请勿重复提交。")
}

// Undecided is the text for a request that no store decided.
func Undecided(accept []string) (text, language string) {
	return either(accept, "The rate limit could not be checked: try again later.", "限流服务暂不可用，请稍后重试。")
}

// Invalid names the invalid part of a request, without its value, which the client knows. The allowed form is in
// English in both languages: it is for the developer of the client.
func Invalid(err error) Text {
	field, allowed := "request", "a request that can be read"
	var input *weir.InputError
	if errors.As(err, &input) {
		field, allowed = input.Field, input.Allowed
	}
	return func(accept []string) (text, language string) {
		lead, language := either(accept, "The "+field+" of this request is not allowed; allowed: ",
			"请求的 "+field+" 无效，允许的是：")
		return lead + allowed + ".", language
	}
}

// Own texts of a gateway.
var (
	NoRoute  = pair("No route of this gateway matches the request.", "网关没有与该请求匹配的路由。")
	Late     = pair("The upstream did not respond in time.", "上游服务未能及时响应。")
	Busy     = pair("Too many requests are in progress at the upstream.", "上游服务正在处理的请求过多。")
	TooLarge = pair("The body is too large.", "请求体过大。")
	Unread   = pair("The body could not be read.", "无法读取请求体。")
	Broken   = pair("The upstream could not be reached, or its response is invalid.", "无法连接上游服务，或其响应无效。")
)

// NotForwarded is the text for a method that no gateway forwards.
func NotForwarded(method string) Text {
	return pair("This gateway does not forward "+method+".", "网关不转发 "+method+" 请求。")
}

func pair(en, zh string) Text {
	return func(accept []string) (text, language string) { return either(accept, en, zh) }
}

// Exceeds is the title of a problem for an exceeded limit.
func Exceeds(language string) string {
	if isChinese(language) {
		return "请求超出限额"
	}
	return "Request cannot be satisfied as assigned quota has been exceeded"
}

// titles are the Chinese titles of the other statuses; the English ones are net/http's.
var titles = map[int]string{
	http.StatusBadRequest:            "请求无效",
	http.StatusForbidden:             "禁止访问",
	http.StatusNotFound:              "未找到",
	http.StatusConflict:              "请求冲突",
	http.StatusRequestEntityTooLarge: "请求体过大",
	http.StatusTooManyRequests:       "请求过多",
	http.StatusInternalServerError:   "服务器内部错误",
	http.StatusNotImplemented:        "不支持该请求",
	http.StatusBadGateway:            "网关错误",
	http.StatusServiceUnavailable:    "服务暂不可用",
	http.StatusGatewayTimeout:        "网关超时",
}

// Title is the title of a problem with another status.
func Title(language string, status int) string {
	if title := titles[status]; isChinese(language) && title != "" {
		return title
	}
	return http.StatusText(status)
}

func isChinese(tag string) bool {
	primary, _, _ := strings.Cut(strings.ToLower(tag), "-")
	return primary == "zh"
}

func either(accept []string, en, zh string) (text, language string) {
	if language = Language(accept); language == "zh" {
		return zh, language
	}
	return en, language
}

// Language is "zh" if Accept-Language prefers any Chinese to any English, and "en" otherwise. One Chinese text serves
// all scripts and regions, so a matcher of language distances, as messages of rules have it, has no choice to
// make: it takes 2.5 µs and 21 allocations.
func Language(accept []string) string {
	best, chosen := 0.0, "en"
	if !readable(accept) {
		return chosen
	}
	for _, field := range accept {
		for part := range strings.SplitSeq(field, ",") {
			tag, parameters, _ := strings.Cut(part, ";")
			primary, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(tag)), "-")
			if primary == "*" {
				primary = "en"
			}
			if q := quality(parameters); (primary == "zh" || primary == "en") && q > best {
				best, chosen = q, primary
			}
		}
	}
	return chosen
}

// quality is the q of a language range: 1 if absent, 0 if malformed.
func quality(parameters string) float64 {
	if strings.TrimSpace(parameters) == "" {
		return 1
	}
	key, value, _ := strings.Cut(strings.TrimSpace(parameters), "=")
	q, err := strconv.ParseFloat(value, 64)
	if (key != "q" && key != "Q") || err != nil || !(q >= 0 && q <= 1) { // NaN is neither
		return 0
	}
	return q
}
