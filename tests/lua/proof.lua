-- SPDX-License-Identifier: Apache-2.0
-- Something of everything that the proof of offsets looks at: functions in
-- functions, upvalues, a coroutine that waits deep in calls, traces with side
-- traces. Says "ready" and waits for the end of its input.

local count = 0

local function outer(a, b)
	local function inner(x)
		count = count + 1
		if x % 3 == 0 then
			return x * a
		end
		return x + b
	end
	local sum = 0
	for i = 1, 500 do
		sum = sum + inner(i)
	end
	return sum, inner
end

local function loops(n)
	local t = {}
	for i = 1, n do
		local s = tostring(i % 7)
		t[s] = (t[s] or 0) + (i % 5 == 0 and 2 or 1)
	end
	return t
end

local function deep(n)
	if n == 0 then
		coroutine.yield(count)
		return 0
	end
	return 1 + deep(n - 1)
end

kept = {}
for i = 1, 10 do
	kept[i] = { outer(i, i + 1) }
	loops(2000)
end
local waiting = coroutine.create(deep)
coroutine.resume(waiting, 20)
kept.waiting = waiting
collectgarbage()
io.write("ready\n")
io.flush()
io.read("*a")
