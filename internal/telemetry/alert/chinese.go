package alert

import (
	"strconv"
	"strings"

	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/internal/timewords"
)

// Languages are the languages of messages. Log and history are in English.
var Languages = []string{"en", "zh"}

// chinese are the sentences for alerts by their name; the console has the same, as a test compares.
var chinese = map[string]string{
	"reject_share": "规则 {rule} 在 {window} 内拒绝了 {total} 个请求中的 {share}，超过 {limit}",
	"degraded":     "存储没有应答：{window} 内有 {n} 个请求按 on_store_error 判定",
	"more":         "；另有 {n} 条，例如 {rules}",
	"alone":        "（仅为单个节点的计数：Redis 没有应答）",
}

// inChinese is the text of an alert in Chinese, made from its values.
func inChinese(a *telemetry.Alert) string {
	rules := a.Rules
	if len(rules) == 0 {
		rules = []string{a.Rule}
	}
	text := chinese[a.Name]
	if text == "" {
		return a.Text
	}
	words := timewords.Of("zh")
	text = strings.NewReplacer("{rule}", rules[0], "{window}", words.Duration(a.Window),
		"{share}", percentage(a.Value), "{limit}", percentage(a.Limit),
		"{total}", strconv.FormatUint(a.Total, 10), "{n}", strconv.FormatFloat(a.Value, 'f', 0, 64)).Replace(text)
	if a.Count > 1 {
		text += strings.NewReplacer("{n}", strconv.Itoa(a.Count-1), "{rules}", strings.Join(rules[1:], "、")).
			Replace(chinese["more"])
	}
	if a.Alone {
		text += chinese["alone"]
	}
	return text
}

func percentage(share float64) string { return strconv.FormatFloat(100*share, 'g', 3, 64) + "%" }
