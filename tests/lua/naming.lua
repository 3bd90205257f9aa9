-- SPDX-License-Identifier: Apache-2.0
-- Ways to define a function, and what it is called in a stack.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock

local M, obj = {}, { n = 400 }

local function plain(n) --: plain
  local s = 0
  for i = 1, n do s = s + i end
  return s
end
function M.field(n) --: M.field
  local s = 0
  for i = 1, n do s = s + i end
  return s
end
function obj:method(n) --: obj:method
  local s = self.n
  for i = 1, n do s = s + i end
  return s
end
function global_function(n) --: global_function
  local s = 0
  for i = 1, n do s = s + i end
  return s
end
local assigned
assigned = function(n) --: assigned
  local s = 0
  for i = 1, n do s = s + i end
  return s
end
local function factory() --: factory
  local function inner(n) --: inner
    local s = 0
    for i = 1, n do s = s + i end
    return s
  end
  return inner
end
local made = factory()

local calls = {
  plain = plain, ["M.field"] = M.field, global_function = global_function,
  assigned = assigned, inner = made,
}
local order = { "plain", "M.field", "global_function", "assigned", "inner" }
local scale = jit.status() and 500000 or 50000
while go() do
  for i = 1, #order do
    local t = clock()
    calls[order[i]](scale)
    add(order[i], clock() - t)
  end
  local t = clock()
  obj:method(scale)
  add("obj:method", clock() - t)
end
