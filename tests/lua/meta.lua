-- SPDX-License-Identifier: Apache-2.0
-- Metamethods. Most are called by the VM itself, with a continuation frame and
-- no C frame between; the graph says which user reaches which metamethod.
local truth = require("truth")
local go, add_time, clock = truth.go, truth.add, truth.clock

local function body(n) --: body
  local s = 0
  for i = 1, 150 do s = s + i * n end
  return s
end

local function mm_index(t, key) --: mm_index
  local s = body(1)
  return s
end
local function mm_newindex(t, key, value) --: mm_newindex
  body(value)
end
local function mm_add(a, b) --: mm_add
  local s = body(2)
  return s
end
local function mm_unm(a) --: mm_unm
  local s = body(3)
  return s
end
local function mm_eq(a, b) --: mm_eq
  return body(4) > 0
end
local function mm_lt(a, b) --: mm_lt
  return body(5) > 0
end
local function mm_le(a, b) --: mm_le
  return body(6) > 0
end
local function mm_concat(a, b) --: mm_concat
  return "c" .. body(7)
end
local function mm_call(self, n) --: mm_call
  local s = body(n)
  return s
end
local function mm_tostring(self) --: mm_tostring
  return "t" .. body(8)
end

local mt = {}
mt.__index = mm_index
mt.__newindex = mm_newindex
mt.__add = mm_add
mt.__unm = mm_unm
mt.__eq = mm_eq
mt.__lt = mm_lt
mt.__le = mm_le
mt.__concat = mm_concat
mt.__call = mm_call
mt.__tostring = mm_tostring
local a, b = setmetatable({}, mt), setmetatable({}, mt)

-- __len of a table needs Lua 5.2 semantics; of a proxy it works everywhere.
local function mm_len(self) --: mm_len
  local s = body(9)
  return s
end
local proxy = newproxy(true)
getmetatable(proxy).__len = mm_len

local function use_index(n) --: use_index
  local s = 0
  for i = 1, n do s = s + a.foo; a.bar = 1 end
  return s
end
local function use_arith(n) --: use_arith
  local s = 0
  for i = 1, n do s = s + (a + b) + -a + #proxy end
  return s
end
local function use_compare(n) --: use_compare
  local s = 0
  for i = 1, n do
    if a == b then s = s + 1 end
    if a < b then s = s + 1 end
    if a <= b then s = s + 1 end
  end
  return s
end
local function use_concat(n) --: use_concat
  local s = 0
  for i = 1, n do s = s + #(a .. "x") end
  return s
end
local function use_call(n) --: use_call
  local s = 0
  for i = 1, n do s = s + a(i) end
  return s
end
local function use_tostring(n) --: use_tostring
  local s = 0
  for i = 1, n do s = s + #tostring(a) end
  return s
end

local scale = jit.status() and 10 or 1
while go() do
  local t0 = clock()
  use_index(100 * scale)
  local t1 = clock()
  use_arith(100 * scale)
  local t2 = clock()
  use_compare(100 * scale)
  local t3 = clock()
  use_concat(100 * scale)
  local t4 = clock()
  use_call(100 * scale)
  local t5 = clock()
  use_tostring(50 * scale)
  local t6 = clock()
  add_time("use_index", t1 - t0)
  add_time("use_arith", t2 - t1)
  add_time("use_compare", t3 - t2)
  add_time("use_concat", t4 - t3)
  add_time("use_call", t5 - t4)
  add_time("use_tostring", t6 - t5)
end
