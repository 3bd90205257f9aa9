-- SPDX-License-Identifier: Apache-2.0
-- One script, three threads with a VM each; every thread runs functions that
-- the others never call.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local c_call, wrap, yield = c_call, coroutine.wrap, coroutine.yield

local function spin(n) --: spin
  local s = 0
  for i = 1, n do s = s + i * 0.5 end
  return s
end

local function one_inner(n) --: one_inner
  return spin(n) + 1
end
local function one(n) --: one
  for i = 1, 20 do one_inner(n) end
end

local function two_inner(n) --: two_inner
  return spin(n) + 1
end
local function two(n) --: two
  for i = 1, 20 do c_call(two_inner, n) end
end

local function three_body(n) --: three_body
  for i = 1, 20 do
    spin(n)
    yield()
  end
end
local function three(n) --: three
  local co = wrap(three_body)
  for i = 1, 20 do co(n) end
end

local parts = { one, two, three }
local names = { "one", "two", "three" }
local part, name = parts[THREAD], names[THREAD]
local scale = jit.status() and 50000 or 5000
while go() do
  local t = clock()
  part(scale)
  add(name, clock() - t)
end
