package httplimit

import (
	"net/http"
	"strconv"
	"strings"
)

// A message is a sentence in one of the two languages.
type message func(language string, seconds int64) string

func later(language string, seconds int64) string {
	if language == "zh" {
		return "请求过于频繁，请在 " + integer(seconds) + " 秒后重试。"
	}
	return "Too many requests: try again in " + integer(seconds) + " s."
}

func never(language string, _ int64) string {
	return either(language, "This request costs more than the limit ever grants: waiting does not help, request less.",
		"该请求的用量超过限额的上限，等待也无法通过，请减少用量。")
}

func missingKey(language string, _ int64) string {
	return either(language, "This request lacks the key that its limit requires.", "请求缺少限流所需的标识。")
}

func denied(language string, _ int64) string {
	return either(language, "This request is not allowed.", "该请求不被允许。")
}

// titleExceeded is the title of a problem for an exceeded limit.
func titleExceeded(language string) string {
	return either(language, "Request cannot be satisfied as assigned quota has been exceeded", "请求超出分配的配额")
}

// titles are the Chinese titles of the other statuses; the English ones are net/http's.
var titles = map[int]string{
	http.StatusBadRequest:          "请求无效",
	http.StatusForbidden:           "禁止访问",
	http.StatusTooManyRequests:     "请求过多",
	http.StatusInternalServerError: "服务器内部错误",
	http.StatusServiceUnavailable:  "服务暂不可用",
}

func titleOf(language string, status int) string {
	if title := titles[status]; language == "zh" && title != "" {
		return title
	}
	return http.StatusText(status)
}

// wrong names the invalid part of a request. The allowed form is in English in both languages: it
// is for the developer of the client.
func wrong(language, field, allowed string) string {
	lead := either(language, "The "+field+" of this request is not allowed; allowed: ", "请求的 "+field+" 无效，允许的是：")
	return lead + allowed + "."
}

func undecided(language string, _ int64) string {
	return either(language, "The rate limit could not be checked: try again later.", "暂时无法检查限流，请稍后重试。")
}

func either(language, en, zh string) string {
	if language == "zh" {
		return zh
	}
	return en
}

// language is "zh" if Accept-Language prefers any Chinese to any English, and "en" otherwise. One
// Chinese text serves all scripts and regions, so a matcher of language distances, as in
// golang.org/x/text, has nothing to choose from.
func language(fields []string) string {
	best, chosen := 0.0, "en"
	for _, field := range fields {
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
