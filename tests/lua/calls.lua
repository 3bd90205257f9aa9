-- SPDX-License-Identifier: Apache-2.0
-- Prime numbers of calls of each kind of function. Waits for a line on stdin,
-- calls, prints `called NAME N` for what it has counted itself, `done`, and
-- waits for the end of stdin. Argument: how often to call `plain` (997).
local PLAIN = tonumber((...) or 997)

local function plain(a) --: plain
  return a
end
local function vararg(...) --: vararg
  return ...
end
local object = {}
function object:method(a) --: object:method
  return self, a
end
local function make()
  return function(a) return a end --: closure
end
local first, second = make(), make()
local function recursive(n) --: recursive
  if n > 1 then return 1 + recursive(n - 1) end
  return 0
end
local function tail_last(a) --: tail_last
  return a
end
local function tail_first(a) --: tail_first
  return tail_last(a)
end
local meta = setmetatable({}, {
  __index = function(t, k) return k end, --: index
  __call = function(self, a) return a end, --: call
  __add = function(a, b) return 1 end, --: add
  __eq = function(a, b) return true end,
  __len = function(a) return 1 end,
  __concat = function(a, b) return "" end, --: concat
})
local function pcalled(a) --: pcalled
  return a
end
local function throw_inner() --: throw_inner
  error("thrown")
end
local function throw_outer() --: throw_outer
  throw_inner()
  return 1
end
local function body(n) --: body
  for i = 1, n do coroutine.yield(i) end
end
local function on_match(s) --: on_match
  return s
end
local compared = 0
local function compare(a, b) --: compare
  compared = compared + 1
  return a < b
end
local function iterate(n, i) --: iterate
  if i < n then return i + 1 end
end
local function deep(n) --: deep
  if n > 0 then
    local a, b, c, d, e, f, g, h = n, n, n, n, n, n, n, n
    return 1 + deep(n - 1) + a - h
  end
  return 0
end
local function deep_vararg(n, ...) --: deep_vararg
  if n > 0 then return 1 + deep_vararg(n - 1, n, ...) end
  return 0
end

local function calls() --: calls
  for i = 1, PLAIN do plain(i) end
  for i = 1, 499 do vararg(i, i, i) end
  for i = 1, 251 do object:method(i) end
  for i = 1, 61 do first(i) end
  for i = 1, 66 do second(i) end -- with first: 127
  recursive(113)
  for i = 1, 31 do tail_first(i) end
  local sum = 0
  for i = 1, 41 do sum = sum + meta[i] end
  for i = 1, 43 do meta(i) end
  for i = 1, 47 do sum = meta + i end
  for i = 1, 37 do sum = meta .. "x" end
  for i = 1, 53 do pcall(pcalled, i) end
  for i = 1, 59 do pcall(throw_outer) end
  for i = 1, 67 do
    local co = coroutine.wrap(body)
    for j = 1, 3 do co(3) end
  end
  string.gsub(string.rep("x", 71), ".", on_match)
  local t = {}
  for i = 1, 101 do t[i] = i * 7 % 101 end
  table.sort(t, compare)
  for i in iterate, 82, 0 do end -- and once for the end: 83
  for i = 1, 79 do loadstring("return 1", "=made")() end
  -- the stack grows in the middle of calls: none may count twice
  for i = 1, 3 do
    local co = coroutine.create(deep)
    coroutine.resume(co, 1008) -- 1009 calls
  end
  for i = 1, 2 do
    local co = coroutine.create(deep_vararg)
    coroutine.resume(co, 102) -- 103 calls
  end
end

io.write("ready\n")
io.flush()
io.read()
calls()
io.write("called compare ", compared, "\n")
io.write("done\n")
io.flush()
io.read("*a")
