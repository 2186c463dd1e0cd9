package backtest

import "strings"

// A Note is a sentence of a report: a code and values for programs, and the text in English and in Chinese.
type Note struct {
	Code    string            `json:"code"`
	Values  map[string]string `json:"values,omitempty"`
	Text    string            `json:"text"`
	Chinese string            `json:"text_zh"`
	// Severe is that the figures of the report are not to be trusted.
	Severe bool `json:"severe,omitempty"`
}

// note makes a note of pairs of a name and a value.
func note(code string, pairs ...string) Note {
	n := Note{Code: code}
	fill := make([]string, 0, len(pairs))
	for i := 0; i+1 < len(pairs); i += 2 {
		if n.Values == nil {
			n.Values = make(map[string]string)
		}
		n.Values[pairs[i]] = pairs[i+1]
		fill = append(fill, "{"+pairs[i]+"}", pairs[i+1])
	}
	values := strings.NewReplacer(fill...)
	n.Text, n.Chinese = values.Replace(sentences[code][0]), values.Replace(sentences[code][1])
	return n
}

// sentences are the texts of notes by their code: English, Chinese.
var sentences = map[string][2]string{
	"late": {"{count} of {of} requests ({share}) stand more than a minute too late in the log, and are decided at " +
		"the time of the request before them. Give the files as arguments, which are merged by time, or sort the log.",
		"{of} 个请求中有 {count} 个（{share}）在日志中的位置晚了一分钟以上，按其前一个请求的时间判定。" +
			"请把各文件作为参数给出（会按时间合并），或先将日志排序。"},
	"unread": {"{count} of {of} lines ({share}) could not be read.", "{of} 行中有 {count} 行（{share}）无法读取。"},
	"time_start": {"The log states when requests began, to {resolution}.",
		"日志时间是请求开始的时间，精度为 {resolution}。"},
	"time_end": {"The log states when requests ended, to {resolution}.",
		"日志时间是请求结束的时间，精度为 {resolution}。"},
	"time_either": {"The log states when requests began (Apache) or ended (nginx), to {resolution}.",
		"日志时间是请求开始（Apache）或结束（nginx）的时间，精度为 {resolution}。"},
	"time_mixed": {"The log states when requests began in some formats, and ended in others, to {resolution}.",
		"日志时间在一些格式中是请求开始的时间，在另一些中是结束的时间，精度为 {resolution}。"},
	"time_order": {"The log has no times: its requests are decided a millisecond apart, in the order of the lines.",
		"日志没有时间：请求按行的顺序、每毫秒一个判定。"},
	"spread_even": {"Requests of one such unit of time are spread evenly, in the order of the log.",
		"同一时间单位内的请求按日志顺序均匀分布。"},
	"spread_first": {"Requests of one such unit of time are all decided at its begin.",
		"同一时间单位内的请求都在其开始时判定。"},
	"spread_last": {"Requests of one such unit of time are all decided at its end.",
		"同一时间单位内的请求都在其结束时判定。"},
	"repeated": {"The log says that {count} of {of} requests were answered 429 or 503; clients may have repeated " +
		"them, so that they would not all have come under these rules (--retries drop leaves them out).",
		"日志显示 {of} 个请求中有 {count} 个的响应是 429 或 503；客户端可能重试过，因此在这些规则下不会全部出现" +
			"（--retries drop 会排除它们）。"},
	"unformed": {"{count} of {of} requests have a method, host or path that a server would refuse before the rules; " +
		"they are not decided.", "{of} 个请求中有 {count} 个的方法、主机或路径会在规则之前被服务器拒绝，因此未判定。"},
	"no_client": {"{count} of {of} requests name no client; those are counted as one.",
		"{of} 个请求中有 {count} 个没有客户端，这些按同一个客户端计数。"},
	"no_duration": {"{count} of {of} requests have no duration: the concurrency limit of the rule {rule} does not " +
		"see them overlap.", "{of} 个请求中有 {count} 个没有时长：规则 {rule} 的并发限额看不到它们重叠。"},
	"adaptive": {"The limit of the service {service} follows its latency or its refusals, which a log does not show: " +
		"its refusals are not in this report.",
		"服务 {service} 的限额随其延迟或拒绝情况变化，日志无法预知：其拒绝不在本报告中。"},
	"no_status": {"{count} of {of} requests have no status: they count for the rule {rule}.",
		"{of} 个请求中有 {count} 个没有状态码：规则 {rule} 会计入它们。"},
	"no_settle": {"The log does not have the {what} of responses: costs of the rule {rule} stay as estimated.",
		"日志中没有响应的 {what}：规则 {rule} 的消耗保持估计值。"},
	"no_component": {"{count} of {of} requests have no {what}, by which the rule {rule} counts (on_missing: " +
		"{missing}).",
		"{of} 个请求中有 {count} 个没有 {what}，而规则 {rule} 按它计数（on_missing: {missing}）。"},
	"unmatched": {"The rule {rule} matched none of {of} requests. Those that meet each of its conditions: {why}.",
		"规则 {rule} 没有匹配 {of} 个请求中的任何一个。满足其各条件的请求数：{why}。"},
	"lacking": {"{count} of {of} requests ({share}) have no {what}, which the rule {rule} asks for.",
		"{of} 个请求中有 {count} 个（{share}）没有 {what}，而规则 {rule} 需要它。"},
	"full": {"{count} of {of} requests found the store full of keys (--max-keys {most}), as on a server.",
		"{of} 个请求中有 {count} 个遇到存储的键已满（--max-keys {most}），与服务器上相同。"},
	"overflow": {"{count} decisions were made on keys that share a count, since the store was full (--max-keys " +
		"{most}), as on a server.", "由于存储已满（--max-keys {most}），{count} 次判定用的是共享计数的键，与服务器上相同。"},
	"clients_estimated": {"There are more than {most} clients: their numbers are estimated from 1 of {weight}. " +
		"Requests are counted exactly.", "客户端超过 {most} 个：其数目按 {weight} 取 1 估计。请求数是精确的。"},
	"keys_estimated": {"The keys of the rule {rule} and their peaks are estimated from 1 of {weight}.",
		"规则 {rule} 的键及其峰值按 {weight} 取 1 估计。"},
	"good_failing": {"{count} clients meet --good, but more than 9 of 10 of their requests failed: they are not " +
		"counted as good.", "{count} 个客户端满足 --good，但其请求十有九以上失败，因此不算正常客户端。"},

	"one_key": {"The rule has one key for all requests: its limit follows from what the service can do, not from " +
		"what clients do.", "该规则对所有请求只有一个键：其限额取决于服务的能力，而不是客户端的行为。"},
	"few_keys": {"Only {count} keys occurred; {least} are the least from which anything follows. Take a longer log.",
		"只出现了 {count} 个键；至少要有 {least} 个才能得出结论。请用更长的日志。"},
	"nobody_good": {"Cannot tell which limit is right: nobody is known to be good. Say who is with --good, and " +
		"compare the three limits.", "无法判断哪个限额合适：不知道谁是正常客户端。请用 --good 指定，并比较三个限额。"},
	"few_good": {"Cannot tell which limit is right: only {count} keys are of clients that meet --good; {least} " +
		"are the least from which anything follows.",
		"无法判断哪个限额合适：只有 {count} 个键属于 --good 的正常客户端；至少要有 {least} 个才能得出结论。"},
	"good_far_above": {"Cannot tell which limit is right: {count} of {of} keys of good clients have peaks from {to}, " +
		"{ratio} times the {from} of the others: {names}. Find out who they are, and make --good narrower.",
		"无法判断哪个限额合适：{of} 个正常客户端的键中有 {count} 个的峰值从 {to} 起，是其余（{from}）的 {ratio} 倍：{names}。" +
			"请查明它们是谁，并缩小 --good 的范围。"},
	"all_hit_good": {"Cannot tell which limit is right: each of the three refuses more of the good clients than " +
		"--false-positives.", "无法判断哪个限额合适：三个限额拒绝的正常客户端都超过 --false-positives。"},
	"good_most": {"The largest peak of the {count} keys of good clients is {most} in any {window}; a fifth is added.",
		"正常客户端的 {count} 个键在任意 {window} 内的最大峰值是 {most}，再加五分之一。"},
	"good_share": {"{share} of the {count} keys of good clients have at most {most} in any {window}; a fifth is added.",
		"正常客户端的 {count} 个键中 {share} 在任意 {window} 内最多 {most}，再加五分之一。"},
	"proposed": {"{limit} is the smallest of the three that refuses no more good clients than --false-positives.",
		"{limit} 是三个限额中拒绝的正常客户端不超过 --false-positives 的最小的一个。"},
	"peaks": {"Of {count} keys half have at most {median} in any {window}, and the largest peak is {most}.",
		"{count} 个键中，一半在任意 {window} 内最多 {median}，最大的峰值是 {most}。"},
	"peaks_999": {"99.9 % of the keys have at most {p999}.", "99.9 % 的键最多 {p999}。"},
	"gap": {"The widest gap between peaks is {from} … {to}: {above} of {count} keys are above it.",
		"峰值之间最大的空档是 {from} … {to}：{count} 个键中有 {above} 个在其上。"},
	"no_gap": {"No gap between peaks is wider than a factor of {factor}.", "峰值之间没有超过 {factor} 倍的空档。"},
}
