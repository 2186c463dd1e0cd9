-- Asks weir before each request: docs/forward-auth.md.
local url = "http://127.0.0.1:8080/v1/forward-auth?headers=forwarded"
local open = true -- pass requests while weir does not respond
local outage = { [500] = true, [502] = true, [503] = true, [504] = true }

local function refuse(txn, status, headers, body)
	local reply = txn:reply({ status = status, body = body })
	for name, values in pairs(headers) do
		local lower = name:lower()
		if lower ~= "content-length" and lower ~= "connection" and lower ~= "transfer-encoding" then
			for _, value in pairs(values) do
				reply:add_header(name, value)
			end
		end
	end
	txn:done(reply)
end

local function first(headers, name)
	local values = headers[name]
	return values and (values[0] or values[1])
end

core.register_action("weir", { "http-req" }, function(txn)
	local headers = {}
	for name, values in pairs(txn.http:req_get_headers()) do
		headers[name] = {}
		for _, value in pairs(values) do
			table.insert(headers[name], value)
		end
	end
	headers["content-length"], headers["transfer-encoding"], headers["connection"] = nil, nil, nil
	headers["expect"], headers["upgrade"] = nil, nil
	headers["x-forwarded-method"] = { txn.f:method() }
	headers["x-forwarded-uri"] = { txn.f:pathq() }
	headers["x-forwarded-host"] = headers["host"] or { "" }
	headers["x-forwarded-for"] = { txn.f:src() }

	local answer = core.httpclient():get({ url = url, headers = headers, timeout = 2000 })
	if answer.status == 200 then
		txn:set_var("txn.weir_policy", first(answer.headers, "ratelimit-policy") or "")
		txn:set_var("txn.weir_limit", first(answer.headers, "ratelimit") or "")
	elseif answer.headers and answer.headers["x-weir-status"] then
		refuse(txn, answer.status, answer.headers, answer.body)
	elseif answer.status and answer.status > 0 and not outage[answer.status] then
		refuse(txn, 400, { ["cache-control"] = { "no-store" } }, "") -- weir could not read the request
	elseif not open then
		refuse(txn, 503, { ["cache-control"] = { "no-store" } }, "")
	end
end)
