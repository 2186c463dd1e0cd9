package httplimit

import (
	"net/http"
	"strconv"
	"strings"
)

// A message is a sentence in one of the languages.
type message func(language string, seconds int64) string

func later(language string, seconds int64) string {
	if language == "zh" {
		return "请求过于频繁，请在 " + integer(seconds) + " 秒后重试。"
	}
	return "Too many requests: try again in " + integer(seconds) + " s."
}

func never(language string, _ int64) string {
	return either(language, "This request costs more than the limit can ever hold: no wait helps, ask for less.",
		"该请求的用量超过限额的上限，等待也无法通过，请减少用量。")
}

func missingKey(language string, _ int64) string {
	return either(language, "This request lacks what its limit is counted by.", "请求缺少限流所需的标识。")
}

func denied(language string, _ int64) string {
	return either(language, "This request is not allowed.", "该请求不被允许。")
}

// titleExceeded is the title of a problem whose limit refused.
func titleExceeded(language string) string {
	return either(language, "Request cannot be satisfied as assigned quota has been exceeded", "请求超出分配的配额")
}

// titles are those of the other statuses in Chinese; the English ones are net/http's.
var titles = map[int]string{http.StatusBadRequest: "请求无效", http.StatusForbidden: "禁止访问", http.StatusTooManyRequests: "请求过多",
	http.StatusInternalServerError: "服务器内部错误", http.StatusServiceUnavailable: "服务暂不可用"}

func titleOf(language string, status int) string {
	if title := titles[status]; language == "zh" && title != "" {
		return title
	}
	return http.StatusText(status)
}

// wrong names the part of a request that is wrong. What is allowed is told in English: it
// is for whoever writes the client.
func wrong(language, field, allowed string) string {
	return either(language, "The "+field+" of this request is not allowed; allowed: ", "请求的 "+field+" 无效，允许的是：") + allowed + "."
}

func undecided(language string, _ int64) string {
	return either(language, "The limit of this request could not be asked: try again later.", "暂时无法检查限流，请稍后重试。")
}

func either(language, en, zh string) string {
	if language == "zh" {
		return zh
	}
	return en
}

// language is "zh" if the fields of Accept-Language prefer any Chinese to any English, and
// "en" otherwise. There is one Chinese text for all its scripts and regions, so that
// matching by distance between them, as golang.org/x/text does, has nothing to choose from.
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

// quality is q of a language range: 1 where it is absent, 0 where it is malformed.
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
