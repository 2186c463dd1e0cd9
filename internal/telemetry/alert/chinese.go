package alert

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/internal/timewords"
)

// Languages are those of messages. Log and history are in English.
var Languages = []string{"en", "zh"}

// chinese are the sentences for alerts by their name; those of the console, as a test compares.
var chinese = map[string]string{
	"reject_share":      "规则 {rule} 在 {window} 内拒绝了 {total} 个请求中的 {share}，超过 {limit}",
	"new_top_key":       "单个键占规则 {rule} 拒绝的 {share}：{key}",
	"near_limit":        "规则 {rule} 的所有请求共享限额 {what}，已用 {share}",
	"degraded":          "存储没有应答：{window} 内有 {n} 个请求按 on_store_error 判定",
	"store_slow":        "存储缓慢：{window} 内 1% 的调用超过 {took}",
	"source_bad":        "规则来源 {key} 有错误：沿用上一份正确的规则",
	"source_bad.unread": "规则来源 {key} 无法读取：沿用上一份规则",
	"clock_step":        "Redis 时钟跳变超过一秒：限额按此时钟计算",
	"more":              "；另有 {n} 条，例如 {rules}",
	"alone":             "（仅为单个节点的计数：Redis 没有应答）",
}

// inChinese is the text of an alert in Chinese, made from its values.
func inChinese(a *telemetry.Alert) string {
	name, rules := a.Name, a.Rules
	if a.What == "unread" {
		name += ".unread"
	}
	if len(rules) == 0 {
		rules = []string{a.Rule}
	}
	text := chinese[name]
	if text == "" {
		return a.Text
	}
	words := timewords.Of("zh")
	key := fmt.Sprintf("%.200q", cmp.Or(a.Key, rules[0]))
	text = strings.NewReplacer("{rule}", cmp.Or(a.Rule, rules[0]), "{key}", key,
		"{window}", words.Duration(a.Window), "{took}", words.Duration(time.Duration(a.Value*float64(time.Second))),
		"{share}", percentage(a.Value), "{limit}", percentage(a.Limit), "{what}", a.What,
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
