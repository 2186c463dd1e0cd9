-- Asks weir before each request: docs/howto/forward-auth.md.
local url = "http://127.0.0.1:8080/v1/forward-auth?headers=forwarded"
local open = true -- pass requests while the health check of the backend weir fails
local max_lines, max_bytes = 80, 12000 -- of a head, below tune.http.maxhdr and tune.bufsize, which end the check

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

-- Copies the fields of the request. No copy is returned if HAProxy could not send them to weir.
local function copy(txn)
	local headers, lines, bytes = {}, 0, 2 * #(txn.f:pathq() or "")
	for name, values in pairs(txn.http:req_get_headers()) do
		headers[name] = {}
		for _, value in pairs(values) do
			table.insert(headers[name], value)
			lines, bytes = lines + 1, bytes + #name + #value
			if name == "host" then
				bytes = bytes + #value -- it is sent twice
			end
		end
	end
	if lines <= max_lines and bytes <= max_bytes then
		return headers
	end
end

local empty = { ["cache-control"] = { "no-store" } }

core.register_action("weir", { "http-req" }, function(txn)
	if txn.f:nbsrv("weir") == 0 then -- the only request that passes without a decision
		return txn:set_var("txn.weir_pass", open)
	end
	local headers = copy(txn)
	if not headers then
		return refuse(txn, 431, empty, "")
	end
	headers["content-length"], headers["transfer-encoding"], headers["connection"] = nil, nil, nil
	headers["expect"], headers["upgrade"] = nil, nil
	headers["x-forwarded-method"] = { txn.f:method() }
	headers["x-forwarded-uri"] = { txn.f:pathq() }
	headers["x-forwarded-host"] = headers["host"] or { "" }
	headers["x-forwarded-for"] = { txn.f:src() }

	local answer = core.httpclient():get({ url = url, headers = headers, timeout = 2000 })
	local status = answer.status or 0
	if status == 200 then
		txn:set_var("txn.weir_pass", true)
		txn:set_var("txn.weir_policy", first(answer.headers, "ratelimit-policy") or "")
		txn:set_var("txn.weir_limit", first(answer.headers, "ratelimit") or "")
	elseif answer.headers and answer.headers["x-weir-status"] then
		refuse(txn, status, answer.headers, answer.body)
	elseif status >= 400 and status < 500 then
		refuse(txn, 400, empty, "") -- weir could not read the request
	end
end)
