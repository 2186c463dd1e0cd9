// Texts of the page: English, Chinese.
export default {
	'requests.lead': ['Which request was refused, when, and why? Of all nodes, from the audit log', '哪个请求在何时因何被拒绝？来自审计日志，包含全部节点'],
	'requests.request_id': ['Request ID', '请求 ID'],
	'requests.key': ['Key or client address', '键或客户端地址'],
	'requests.rule': ['Rule', '规则'],
	'requests.path': ['Path, such as /login/*', '路径，如 /login/*'],
	'requests.since': ['last {span}', '最近 {span}'],
	'requests.list': ['Refusals, bans and changes', '拒绝、封禁与变更'],
	'requests.list.note': ['the latest first; times of {zone}', '最新在前，时区 {zone}'],
	'requests.none': ['No such request since {from}', '自 {from} 以来没有此请求'],
	'requests.none.text': ['Requests that pass are not in the audit log.', '审计日志不记录通过的请求。'],
};
