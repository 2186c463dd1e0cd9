// Texts of the page: English, Chinese.
export default {
	'requests.lead': ['Which request was refused, when, and why, and what did others cost? Of all nodes, from the audit log', '哪个请求在何时因何被拒绝，其他请求消耗了多少？来自审计日志，包含全部节点'],
	'requests.request_id': ['Request ID', '请求 ID'],
	'requests.key': ['Key or client address', '键或客户端地址'],
	'requests.rule': ['Rule', '规则'],
	'requests.path': ['Path, such as /login/*', '路径，如 /login/*'],
	'requests.since': ['last {span}', '最近 {span}'],
	'requests.kind': ['Kind of records', '记录类型'],
	'requests.others': ['refusals, bans and changes', '拒绝、封禁与变更'],
	'requests.costs': ['costs of requests', '请求的消耗'],
	'requests.list': ['Records', '记录'],
	'requests.list.note': ['the latest first; times of {zone}', '最新在前，时区 {zone}'],
	'requests.none': ['No such record since {from}', '自 {from} 以来没有此记录'],
	'requests.none.text': ['Of requests that pass, the audit log has the costs alone, of rules whose unit has a name.', '对于通过的请求，审计日志只记录其消耗，且仅限单位有名称的规则。'],
};
